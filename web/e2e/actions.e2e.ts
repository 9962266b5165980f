// What is done to one job, and what is told of it while it waits: dialogs included, which are found accessible while they are open.
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { accessible, signedIn, useBrowser } from "./support/browser";
import { Daemon, until } from "./support/daemon";

useBrowser();
let daemon: Daemon;
const LATER = ["--after", "2999-01-01T00:00:00Z"];

beforeAll(async () => {
  daemon = await Daemon.start();
  daemon.work("photos", "index", 'until [ -e "end-$JOBTREE_JOB_ID" ]; do sleep 0.05; done', "--slots", "3");
  daemon.work("reports", "mail", '[ -e "mended-$JOBTREE_JOB_ID" ] || { echo "cannot reach the server" >&2; exit 65; }');
});
afterAll(() => daemon.stop());

const submit = async (job: Record<string, unknown>): Promise<string> => (await daemon.api("POST", "/queue/jobs/submit", { addon_id: "photos", job_type: "index", cost_units: 1, ...job })).job_id;
const finish = (id: string) => daemon.touch(`end-${id}`);
const badge = (page: Page, state: RegExp) => page.locator(".page-head .badge", { hasText: state }).first();

test("a job that waits is edited, then told to run now", async () => {
  const id = daemon.submit("photos", "index", ...LATER);
  const page = await signedIn(daemon);
  await page.goto(`jobs/${id}`);
  await page.getByRole("button", { name: "Edit" }).click();
  const dialog = page.getByRole("dialog");
  expect(await dialog.getByRole("button", { name: "Change the job" }).isDisabled()).toBe(true);
  await accessible(page);
  await dialog.getByLabel("Priority").selectOption("HIGH");
  await dialog.getByLabel("Tags").fill("red, two words");
  await dialog.getByRole("button", { name: "Change the job" }).click();
  await page.getByText("Changed.").waitFor();
  expect(await daemon.api("GET", `/queue/jobs/${id}`)).toMatchObject({ priority: "HIGH", tags: ["red", "two words"], state: "QUEUED" });
  await page.getByRole("link", { name: "two words" }).waitFor();
  await page.getByRole("button", { name: "Run now" }).click();
  await page.getByText("It no longer waits for its time.").waitFor();
  await badge(page, /running/i).waitFor();
  // The run under way counts.
  await page.locator(".facts div", { hasText: "Attempt" }).getByText(/^1 of /).waitFor();
  finish(id);
  await badge(page, /done/i).waitFor();
});

test("a job that failed is retried from its page", async () => {
  const id = await submit({ addon_id: "reports", job_type: "mail", max_attempts: 1 });
  const page = await signedIn(daemon);
  await page.goto(`jobs/${id}`);
  await page.getByText("Failed after 1 of 1 attempts").waitFor();
  daemon.touch(`mended-${id}`);
  await page.getByRole("button", { name: "Retry" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").fill("the server is back");
  await accessible(page);
  await dialog.getByRole("button", { name: "Retry 1 job" }).click();
  await page.getByText("Queued again.").waitFor();
  await badge(page, /done/i).waitFor();
  await page.getByRole("listitem").getByText("the server is back").first().waitFor();
});

test("a run is paused and goes on", async () => {
  const id = await submit({});
  await daemon.waitFor(id, "RUNNING");
  const page = await signedIn(daemon);
  await page.goto(`jobs/${id}`);
  await page.locator(".page-actions").getByRole("button", { name: "Pause" }).click();
  await badge(page, /^paused$/).waitFor();
  await page.locator(".why").getByText("run_paused", { exact: true }).waitFor();
  await page.locator(".page-actions").getByRole("button", { name: "Resume" }).click();
  await badge(page, /^paused$/).waitFor({ state: "detached" });
  finish(id);
  await badge(page, /done/i).waitFor();
});

test("a job tells of its key, its start and its schedule", async () => {
  const first = await submit({ concurrency_key: "album" });
  await daemon.waitFor(first, "RUNNING");
  const second = await submit({ concurrency_key: "album" });
  const page = await signedIn(daemon);
  await page.goto(`jobs/${second}`);
  const why = page.locator(".why");
  await why.getByText("key_taken", { exact: true }).waitFor();
  await why.getByText("It can start when a job with its concurrency key ends.").waitFor();
  await why.locator("li", { hasText: "key_taken" }).getByText("measured, threshold").waitFor();
  finish(first);
  await badge(page, /running/i).waitFor();
  finish(second);

  // A time is shown as this browser's, and where the estimate comes from is told.
  const timed = daemon.submit("photos", "index", ...LATER);
  await page.goto(`jobs/${timed}`);
  await why.getByText("not_yet", { exact: true }).waitFor();
  await why.getByText("by its own start").waitFor();
  await why.locator("time", { hasText: "2999-01-01 00:00" }).first().waitFor();
  expect(await why.innerText()).not.toContain("2999-01-01T");

  const { schedule_id } = await daemon.api("POST", "/schedules", { name: "nightly", cron: "0 3 * * *", job: { addon_id: "music", job_type: "scan", cost_units: 1 } });
  const { job_id } = await daemon.api("POST", `/schedules/${schedule_id}/run`);
  await page.goto(`jobs/${job_id}`);
  await why.getByText("unserved", { exact: true }).waitFor();
  await page.getByRole("link", { name: "schedule", exact: true }).click();
  await page.getByRole("heading", { name: "nightly" }).waitFor();
});

test("menus and help are accessible while they are open", async () => {
  const id = daemon.submit("photos", "index", ...LATER);
  const page = await signedIn(daemon);
  await page.goto(`jobs/${id}`);
  await page.getByLabel("Copy as curl or command line").click();
  await page.getByText(`jobtree show ${id}`, { exact: true }).waitFor();
  await accessible(page);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByLabel("Reason").waitFor();
  await accessible(page);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  expect(await daemon.state(id)).toBe("QUEUED");
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await accessible(page);
});

test("a page that is hidden closes its stream, and has missed nothing when it is seen again", async () => {
  const page = await signedIn(daemon);
  await page.goto("jobs?q=addon:hidden");
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByText("No job matches").waitFor();
  const look = (hidden: boolean) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  const asked: string[] = [];
  await look(true);
  // After some seconds: a glance at another tab costs nothing.
  await page.getByText("Paused", { exact: true }).waitFor();
  page.on("request", (request) => asked.push(request.url()));
  const id = daemon.submit("hidden", "sort", ...LATER);
  // Another subscriber of the same kind has heard of it by then.
  await until("the event", async () => (await daemon.api("GET", `/queue/jobs/${id}/events`)).events.length > 0);
  expect(asked).toEqual([]);
  expect(await page.getByText("No job matches").count()).toBe(1);
  await look(false);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.locator(`[data-key="${id}"]`).waitFor();
});
