// What operators look at and do: addons, workers, leases, schedules, machines, the policy, decisions and tokens.
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { accessible, goTo, signedIn, useBrowser } from "./support/browser";
import { Daemon, until } from "./support/daemon";

useBrowser();
let daemon: Daemon;
beforeAll(async () => {
  daemon = await Daemon.start();
  daemon.work("photos", "index", 'until [ -e "end-$JOBTREE_JOB_ID" ]; do sleep 0.05; done', "--slots", "2");
});
afterAll(() => daemon.stop());

const row = (page: Page, table: string, text: string): Locator => page.getByRole("table", { name: table }).getByRole("row").filter({ hasText: text });

/** Agrees in the dialog, after it was found accessible. */
async function agree(page: Page, button: string, reason?: string): Promise<void> {
  const dialog = page.getByRole("dialog");
  if (reason !== undefined) await dialog.getByLabel("Reason").fill(reason);
  await accessible(page);
  await dialog.getByRole("button", { name: button }).click();
  await dialog.waitFor({ state: "detached" });
}

test("an addon is paused with a reason, and resumed", async () => {
  daemon.submit("music", "play");
  const page = await signedIn(daemon);
  await goTo(page, "addons");
  const music = row(page, "Addons", "music");
  await music.getByRole("link", { name: "1", exact: true }).first().waitFor();
  await music.getByRole("button", { name: "Pause music" }).click();
  await agree(page, "Pause music", "the neighbours sleep");
  await music.getByText("paused", { exact: true }).waitFor();
  await music.getByText("the neighbours sleep").waitFor();
  const pauses = async () => (await daemon.api("GET", "/queue/pauses")).pauses;
  expect(await pauses()).toMatchObject([{ addon_id: "music", reason: "the neighbours sleep" }]);
  // A type alone is paused elsewhere, and resumed here.
  await daemon.api("POST", "/queue/pause", { addon_id: "photos", job_type: "thumbnail", reason: null });
  const types = page.locator(".paused-types");
  await types.getByText("photos / thumbnail").waitFor();
  await types.getByRole("button", { name: "Resume" }).click();
  await types.waitFor({ state: "detached" });
  await music.getByRole("button", { name: "Resume music" }).click();
  await music.getByText("paused", { exact: true }).waitFor({ state: "detached" });
  expect(await pauses()).toEqual([]);
});

test("workers and leases show what is in hand, and a lease is revoked", async () => {
  const job = daemon.submit("photos", "index");
  await daemon.waitFor(job, "RUNNING");
  const page = await signedIn(daemon);
  await goTo(page, "workers");
  const worker = page.locator(".worker", { hasText: "photos" });
  await worker.getByText("live", { exact: true }).waitFor();
  await worker.getByText("index", { exact: true }).waitFor();
  await worker.getByText("1 of 2").waitFor();
  await worker.getByRole("link", { name: job.slice(-8) }).waitFor();

  const { lease_id: lease } = await daemon.api("GET", `/queue/jobs/${job}`);
  await goTo(page, "leases");
  const held = row(page, "Leases", job.slice(-8));
  await held.getByText("photos").first().waitFor();
  await held.getByRole("button", { name: `Revoke lease ${lease.slice(-8)}` }).click();
  await agree(page, "Revoke the lease", "wrong album");
  await page.getByText("Revoked the lease.").waitFor();
  // The job runs again, under another lease, and the reason is kept.
  await until("another lease", async () => ((await daemon.api("GET", `/queue/jobs/${job}`)).lease_id ?? lease) !== lease);
  await goTo(page, "tokens");
  const done = page.locator(".audit li", { hasText: "lease revoked" });
  await done.getByText("wrong album").waitFor();
  daemon.touch(`end-${job}`);
  await daemon.waitFor(job, "DONE");
  await goTo(page, "leases");
  await page.getByText("No lease is live").waitFor();
});

test("a schedule runs now, is paused, resumed and removed", async () => {
  const { schedule_id } = await daemon.api("POST", "/schedules", { name: "nightly", cron: "0 3 * * *", time_zone: "Europe/Berlin", job: { addon_id: "reports", job_type: "mail", cost_units: 7 } });
  const page = await signedIn(daemon);
  await goTo(page, "schedules");
  const card = page.locator(".card", { hasText: "nightly" });
  await card.getByText("0 3 * * *").waitFor();
  await card.getByText("Europe/Berlin").waitFor();
  await card.getByText("reports / mail").waitFor();
  // The next five runs, each at three in the morning.
  await until("five runs", async () => (await card.locator(".next-runs li").count()) === 5);
  for (const text of await card.locator(".next-runs li").allInnerTexts()) expect(text).toContain("03:00");
  await card.getByRole("button", { name: "Run now nightly" }).click();
  await page.getByText("Submitted a job of nightly.").waitFor();
  const made = (await daemon.api("GET", "/queue/jobs?addon_id=reports")).jobs;
  expect(made).toMatchObject([{ schedule_id, job_type: "mail", cost_units: 7 }]);
  await card.locator(`a[href$="/jobs/${made[0].job_id}"]`).waitFor();
  const paused = async () => (await daemon.api("GET", `/schedules/${schedule_id}`)).spec.paused === true;
  await card.getByRole("button", { name: "Pause nightly" }).click();
  await card.getByText("not while it is paused").waitFor();
  expect(await paused()).toBe(true);
  await card.getByRole("button", { name: "Resume nightly" }).click();
  await until("five runs", async () => (await card.locator(".next-runs li").count()) === 5);
  expect(await paused()).toBe(false);
  await card.getByRole("button", { name: "Remove nightly" }).click();
  await agree(page, "Remove the schedule");
  await page.getByText("No schedule yet").waitFor();
  expect((await daemon.api("GET", "/schedules")).schedules).toEqual([]);
});

test("a machine tells how it stands", async () => {
  const page = await signedIn(daemon);
  await goTo(page, "machines");
  const [node] = (await daemon.api("GET", "/status")).nodes;
  const machine = page.locator(".machine");
  await machine.getByRole("heading", { name: node.node_id }).waitFor();
  await machine.getByText("answers you").waitFor();
  await machine.getByText(node.version, { exact: true }).waitFor();
  expect(await machine.count()).toBe(1);
});

test("decisions have the numbers that they were made by", async () => {
  const ask = (cost: number) => daemon.api("POST", "/lease/request", { addon_id: "video", job_type: "cut", cost_units: cost });
  const first = await ask(60);
  expect(first.approved).toBe(true);
  const second = await ask(70);
  expect(second.approved).toBe(false);
  const page = await signedIn(daemon);
  await page.goto("decisions");
  const decisions = page.getByRole("table", { name: "Decisions" });
  const denied = decisions.getByRole("row").filter({ hasText: "video" });
  await denied.getByText("denied", { exact: true }).waitFor();
  const numbers = await denied.locator(".numbers").innerText();
  expect(numbers.replace(/\s+/g, " ")).toMatch(/used \d+ asks for 70 of 100/);
  await page.getByRole("button", { name: "Admitted" }).click();
  await decisions.getByRole("row").filter({ hasText: "video" }).getByText("admitted", { exact: true }).waitFor();
  await daemon.api("POST", `/lease/${first.lease_id}/release`, {});
});

test("a policy is tried on what was recorded, and applied", async () => {
  for (let n = 0; n < 3; n++) daemon.submit("video", "never");
  const page = await signedIn(daemon);
  await goTo(page, "quiet");
  const policy = page.locator(".policy");
  const leases = policy.getByLabel("Leases at once");
  const before = await daemon.policy();
  expect(await policy.getByRole("button", { name: "Apply" }).isDisabled()).toBe(true);
  // What makes no sense is refused before anything is applied.
  await policy.getByLabel("Quiet up to busy").fill("12");
  await policy.getByText("quiet.quiet_max").first().waitFor();
  await policy.getByRole("button", { name: "Apply", disabled: true }).waitFor();
  await policy.getByRole("button", { name: "Discard changes" }).click();
  await leases.fill("7");
  await policy.getByText("was 100").waitFor();
  // The text that the fields change is all there is: no job starts where measurements from outside are missing.
  await policy.getByRole("button", { name: "As text" }).click();
  const text = policy.getByLabel("The policy as TOML");
  const draft = await text.inputValue();
  expect(draft).toContain("leases = 7");
  const preview = policy.locator(".preview");
  const looked = async () => {
    await policy.getByRole("button", { name: /^Preview/ }).click();
    await preview.getByRole("row", { name: /Would have started/ }).waitFor();
    return (await preview.getByRole("row", { name: /Would have started/ }).innerText()).replace(/\s+/g, " ");
  };
  await text.fill(draft.replace("pushed_required = false", "pushed_required = true"));
  await until("that nothing would start", async () => / 0 of [1-9]\d*$/.test((await looked()).trim()));
  expect(await daemon.policy()).toBe(before);
  await text.fill(draft);
  // The preview was of another draft.
  await preview.waitFor({ state: "detached" });
  await until("that as many would start", async () => {
    const [, present, given, jobs] = /(\d+) of \d+ (\d+) of (\d+)$/.exec((await looked()).trim()) ?? [];
    return jobs !== undefined && given === present && Number(given) > 0;
  });
  await accessible(page);
  await policy.getByRole("button", { name: "Apply" }).click();
  await page.getByRole("dialog").getByText("caps.leases").waitFor();
  await agree(page, "Apply the policy");
  await page.getByText("The policy is in force.").waitFor();
  expect(await daemon.policy()).toContain("leases = 7");
}, 60_000);

test("a token is made, shown once, and removed", async () => {
  const page = await signedIn(daemon);
  await goTo(page, "tokens");
  await page.getByText("Make a token").click();
  await page.getByLabel("What it is for").fill("wall");
  await accessible(page);
  await page.getByRole("button", { name: "Make the token" }).click();
  const shown = page.locator(".secret");
  await shown.getByText("The token wall.").waitFor();
  const secret = await shown.locator("code").innerText();
  expect((await daemon.api("GET", "/tokens/current", undefined, secret)).scopes).toEqual(["read"]);
  await shown.getByRole("button", { name: "I have it" }).click();
  await shown.waitFor({ state: "detached" });
  expect(await page.content()).not.toContain(secret);
  await row(page, "Tokens", "wall").getByRole("button", { name: "Remove wall" }).click();
  await agree(page, "Remove the token");
  await row(page, "Tokens", "wall").waitFor({ state: "detached" });
  await expect(daemon.api("GET", "/tokens/current", undefined, secret)).rejects.toThrow("401");
});
