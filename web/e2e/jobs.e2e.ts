// What waits and what runs: the overview, the list of jobs, the page of a job, and updates as they happen.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { newPage, signedIn, useBrowser } from "./support/browser";
import { Daemon, until } from "./support/daemon";

useBrowser();
let daemon: Daemon;
const LATER = ["--after", "2999-01-01T00:00:00Z"];
/** Runs until a file named after the job's last digits is there. */
const SCRIPT = `
echo "begins with $JOBTREE_ATTEMPT"
echo '::progress 0.5 half way'
until [ -e "end-$JOBTREE_JOB_ID" ]; do
  if [ -e "say-$JOBTREE_JOB_ID" ]; then rm "say-$JOBTREE_JOB_ID"; echo 'a line that was asked for'; fi
  sleep 0.05
done
echo '::result {"big": 12345678901234567890123, "list": [1, 2]}'
`;

beforeAll(async () => {
  daemon = await Daemon.start();
  daemon.work("photos", "index", SCRIPT, "--slots", "2");
  daemon.work("reports", "mail", "echo 'cannot reach the server' >&2; exit 65");
});
afterAll(() => daemon.stop());

const rows = (page: Page) => page.getByRole("table", { name: "Jobs" }).locator("[data-key]:not(.pending)");
const finish = (id: string) => daemon.touch(`end-${id}`);

test("the overview tells what waits, what runs and what failed, and leads to it", async () => {
  const running = daemon.submit("photos", "index");
  const failed = daemon.submit("reports", "mail");
  const waiting = daemon.submit("music", "play");
  await daemon.waitFor(running, "RUNNING");
  await daemon.waitFor(failed, "FAILED");
  const page = await signedIn(daemon);
  const stat = (label: string) => page.locator(".stats a", { hasText: label });
  await until("the counts", async () => {
    const texts = await page.locator(".stats a").allInnerTexts();
    return /Running\s+1\b/.test(texts.join(" ")) && /Waiting\s+1\b/.test(texts.join(" ")) && /Failed, last hour\s+1\b/.test(texts.join(" "));
  });
  // The running job is drawn, and what it says of itself is to be had.
  await page.locator(`a[href$="/jobs/${running}"]`).first().waitFor();
  await stat("Running").click();
  expect(page.url()).toBe(`${daemon.url}/jobs?q=state:running`);
  await until("the running job alone", async () => (await rows(page).count()) === 1);
  expect(await rows(page).first().getAttribute("data-key")).toBe(running);
  // It follows what happens. The row stays where it is, in its new state; the next reading of the list leaves it out.
  finish(running);
  await until("its end", async () => /done/i.test(await rows(page).first().innerText()));
  await page.reload();
  await page.getByText("No job matches").waitFor();
  // The number of failures counts what its link finds.
  await page.goto("");
  await stat("Failed, last hour").click();
  expect(decodeURIComponent(page.url()).replaceAll("+", " ")).toBe(`${daemon.url}/jobs?q=state:failed ended:1h`);
  await until("the failed job alone", async () => (await rows(page).count()) === 1);
  expect(await rows(page).first().getAttribute("data-key")).toBe(failed);
  daemon.run("cancel", waiting);
});

test("a filter lies in the address, and the back button undoes it", async () => {
  const ids = ["one", "two"].map((tag) => daemon.submit("albums", "sort", "--tag", tag, "--payload", `{"name":"album ${tag}"}`, ...LATER));
  daemon.submit("other", "sort", ...LATER);
  const page = await signedIn(daemon);
  await page.getByRole("navigation").getByRole("link", { name: "Jobs", exact: true }).click();
  await page.keyboard.press("/");
  const field = page.locator("[data-search]");
  expect(await field.evaluate((field) => field === document.activeElement)).toBe(true);
  await field.fill("addon:albums");
  await until("two rows", async () => (await rows(page).count()) === 2);
  expect(page.url()).toBe(`${daemon.url}/jobs?q=addon:albums`);
  await field.fill("addon:albums tag:two");
  await until("one row", async () => (await rows(page).count()) === 1);
  await page.keyboard.press("Escape");
  await page.reload();
  await until("one row", async () => (await rows(page).count()) === 1);
  expect(await rows(page).first().getAttribute("data-key")).toBe(ids[1]);
  expect(await field.inputValue()).toBe("addon:albums tag:two");
  await rows(page).first().getByRole("link").click();
  await page.getByRole("heading", { name: "sort" }).waitFor();
  await page.goBack();
  await until("one row", async () => (await rows(page).count()) === 1);
  // The last digits of an id find its job.
  await field.fill(ids[0]?.slice(-8) ?? "");
  await until("the job", async () => (await rows(page).count()) === 1 && (await rows(page).first().getAttribute("data-key")) === ids[0]);
});

test("the keyboard goes through the list and everywhere", async () => {
  const page = await signedIn(daemon);
  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
  await until("rows", async () => (await rows(page).count()) >= 3);
  const keys = await rows(page).evaluateAll((all) => all.map((row) => row.getAttribute("data-key")));
  for (const [key, row] of [["j", 0], ["j", 1], ["k", 0], ["j", 1]] as const) {
    await page.keyboard.press(key);
    await until(`the focus on row ${row}`, async () => (await page.evaluate(() => document.activeElement?.getAttribute("data-key"))) === keys[row]);
  }
  const second = keys[1];
  await page.keyboard.press("x");
  await page.getByText("1 job selected").waitFor();
  await page.keyboard.press("Escape");
  expect(await page.getByText("1 job selected").count()).toBe(0);
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("Next row").waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await until("the job", () => page.url() === `${daemon.url}/jobs/${second}`);
});

test("jobs that were selected are cancelled, exactly these", async () => {
  const ids = [1, 2, 3, 4, 5].map(() => daemon.submit("many", "sort", ...LATER));
  const page = await signedIn(daemon);
  await page.goto("jobs?q=addon:many");
  await until("five rows", async () => (await rows(page).count()) === 5);
  for (const id of ids.slice(0, 3)) await page.getByRole("checkbox", { name: `Select ${id}` }).check();
  // One of them ends before the button is used.
  daemon.run("cancel", ids[0] ?? "");
  await rows(page).first().waitFor();
  await until("its state", async () => (await page.locator(`[data-key="${ids[0]}"]`).innerText()).toLowerCase().includes("cancel"));
  await page.locator(".bulk-bar").getByRole("button", { name: "Cancel" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("heading", { name: "Cancel 2 jobs?" }).waitFor();
  await dialog.getByText("1 selected job is in a state in which there is nothing to cancel.").waitFor();
  await dialog.getByLabel("Reason").fill("<b>not needed</b>");
  await dialog.getByRole("button", { name: "Cancel 2 jobs" }).click();
  await page.getByText("2 jobs cancelled.").waitFor();
  const states = await Promise.all(ids.map((id) => daemon.state(id)));
  expect(states).toEqual(["CANCELED", "CANCELED", "CANCELED", "QUEUED", "QUEUED"]);
});

test("all jobs that match are cancelled, as many as the question names, and no more", async () => {
  const ids = Array.from({ length: 12 }, () => daemon.submit("bulk", "sort", ...LATER));
  const other = daemon.submit("bulk", "other", ...LATER);
  const page = await signedIn(daemon);
  await page.goto("jobs?q=addon:bulk+type:sort");
  await until("twelve rows", async () => (await rows(page).count()) === 12);
  await page.getByRole("checkbox", { name: "Select all that match" }).check();
  await page.locator(".bulk-bar").getByRole("button", { name: "Cancel" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("heading", { name: "Cancel 12 jobs?" }).waitFor();
  // After the question came up: one ends, and one is submitted that would match.
  daemon.run("cancel", ids[3] ?? "");
  const late = daemon.submit("bulk", "sort", ...LATER);
  await dialog.getByRole("button", { name: "Cancel 12 jobs" }).click();
  await page.getByRole("heading", { name: "Cancel 12 jobs" }).waitFor();
  await page.getByText("ended", { exact: true }).waitFor();
  await page.getByText("12 of 12").waitFor();
  const figures = await page.locator(".figures").innerText();
  expect(figures.replace(/\s+/g, " ")).toContain("done 11 skipped: had changed 1 refused 0");
  for (const id of ids) expect(await daemon.state(id)).toBe("CANCELED");
  for (const id of [other, late]) expect(await daemon.state(id)).toBe("QUEUED");
});

test("a job tells why it waits, until a worker comes", async () => {
  const id = daemon.submit("music", "play");
  const page = await signedIn(daemon);
  await page.goto(`jobs/${id}`);
  const why = page.locator(".why");
  await why.getByText("unserved", { exact: true }).waitFor();
  await why.getByText("It can start when").first().waitFor();
  // Its own start, another job and a key are told as well.
  const timed = daemon.submit("music", "play", ...LATER);
  await page.goto(`jobs/${timed}`);
  await why.getByText("not_yet", { exact: true }).waitFor();
  const depends = daemon.submit("music", "play", "--depends-on", timed);
  await page.goto(`jobs/${depends}`);
  await why.getByText("dependency", { exact: true }).waitFor();
  daemon.run("pause", "music");
  await page.goto(`jobs/${id}`);
  await why.getByText("addon_paused", { exact: true }).waitFor();
  daemon.run("resume", "music");
  await why.getByText("addon_paused", { exact: true }).waitFor({ state: "detached" });
  daemon.work("music", "play", "exit 0");
  await page.locator(".badge", { hasText: /done/i }).waitFor();
  expect(await why.count()).toBe(0);
});

test("the log follows the job, and the result keeps its digits", async () => {
  const id = daemon.submit("photos", "index", "--payload", '{"path": "/photos", "seed": 98765432109876543210}');
  await daemon.waitFor(id, "RUNNING");
  const page = await signedIn(daemon);
  await page.goto(`jobs/${id}`);
  await page.getByText("begins with 1").waitFor();
  await page.getByText("half way").first().waitFor();
  await page.getByText("98765432109876543210").waitFor();
  daemon.touch(`say-${id}`);
  await page.getByText("a line that was asked for").waitFor();
  finish(id);
  await page.getByText("12345678901234567890123").waitFor();
  await page.locator(".badge", { hasText: /done/i }).waitFor();
});

test("a running job is cancelled from its page, and its program ends", async () => {
  const id = daemon.submit("photos", "index");
  await daemon.waitFor(id, "RUNNING");
  const page = await signedIn(daemon);
  await page.goto(`jobs/${id}`);
  await page.getByRole("button", { name: "Cancel" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").fill("looked at from a browser");
  await dialog.getByRole("button", { name: /^Cancel/ }).click();
  await page.locator(".badge", { hasText: /cancel/i }).first().waitFor();
  await daemon.waitFor(id, "CANCELED");
  await page.getByText("looked at from a browser").first().waitFor();
});

test("a page goes on by itself after its daemon was away, and misses nothing", async () => {
  const page = await signedIn(daemon);
  await page.goto("jobs?q=addon:restart");
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByText("No job matches").waitFor();
  await daemon.end();
  await page.getByText("Reconnecting…").waitFor();
  await daemon.begin();
  const id = daemon.submit("restart", "sort", ...LATER);
  await until("the job", async () => (await rows(page).count()) === 1);
  await page.getByText("Live", { exact: true }).waitFor();
  // Signed in still, with the session of before.
  await page.getByRole("checkbox", { name: `Select ${id}` }).check();
  await page.locator(".bulk-bar").getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel 1 job" }).click();
  await daemon.waitFor(id, "CANCELED");
});

test("live updates pause and go on", async () => {
  const page = await signedIn(daemon);
  await page.goto("jobs?q=addon:paused");
  await page.getByText("Live", { exact: true }).waitFor();
  await page.keyboard.press("p");
  await page.getByText("Paused", { exact: true }).waitFor();
  daemon.submit("paused", "sort", ...LATER);
  // Another page learns of it, so this one could have.
  const other = await newPage(daemon);
  await other.goto(await daemon.link());
  await other.getByRole("heading", { name: "Overview" }).waitFor();
  await other.goto("jobs?q=addon:paused");
  await until("the row there", async () => (await rows(other).count()) === 1);
  expect(await rows(page).count()).toBe(0);
  await page.keyboard.press("p");
  await until("the row here", async () => (await rows(page).count()) === 1);
});

test("the list goes on past five hundred jobs, and stays where it is while new ones come", async () => {
  const submit = async (count: number): Promise<string[]> => {
    const job = { addon_id: "pages", job_type: "sort", cost_units: 1, earliest_start_at: "2999-01-01T00:00:00Z" };
    const { jobs } = await daemon.api("POST", "/queue/jobs/submit-many", { jobs: Array.from({ length: count }, () => job) });
    return jobs.map(({ job_id }: { job_id: string }) => job_id);
  };
  const expected = (await submit(620)).reverse();
  const page = await signedIn(daemon);
  await page.goto("jobs?q=addon:pages");
  await until("the first rows", async () => (await rows(page).count()) > 5);
  const table = page.locator(".jobs .table.fill");
  /** The ids of the rows that are in the page, by their places. */
  const shown = () => rows(page).evaluateAll((all) => all.map((row) => [Number(row.getAttribute("aria-rowindex")) - 2, row.getAttribute("data-key")] as const));
  const seen = new Map<number, string>();
  for (let place = 0; place < expected.length; ) {
    await table.evaluate((box, top) => box.scrollTo({ top }), place * 42);
    await until(`row ${place}`, async () => (await shown()).some(([at]) => at === Math.min(place + 5, expected.length - 1)));
    for (const [at, id] of await shown()) {
      expect(seen.get(at) ?? id, `row ${at} does not change`).toBe(id);
      seen.set(at, id ?? "");
    }
    // New jobs come once the first page is left behind. They wait above, and move nothing.
    if (place > 100 && place < 300) await submit(7);
    place = Math.max(...seen.keys()) + 1;
  }
  expect([...seen.keys()].length).toBe(expected.length);
  expect(expected.map((_, at) => seen.get(at))).toEqual(expected);
  await page.getByRole("button", { name: /new jobs? above/ }).click();
  await until("the newest job at the top", async () => {
    const [first] = await shown();
    return first?.[0] === 0 && first[1] !== expected[0];
  });
});
