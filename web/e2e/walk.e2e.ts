// The walk through the whole house: curl submits a durable job, the machine turns quiet, a worker runs it as a job on a lane whose
// task opens a nursery and forks a parallel loop. The browser shows why it waits, its tree and its progress, and cancels it: every
// level below ends, and one trace names each step.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { accessible, signedIn, useBrowser } from "./support/browser";
import { Daemon, until } from "./support/daemon";

useBrowser();
let daemon: Daemon;
beforeAll(async () => {
  daemon = await Daemon.start();
});
afterAll(() => daemon.stop());

const LEVELS = ["run", "lane", "nursery", "loop"];
/** What every level below a cancelled job has to end in. A machine that is busy with other things may be late by itself, but not always. */
const PROMPT_MS = 1000;
const TRIES = 5;

/** Tells the daemon how long the requests of its host take: 650 ms keep the machine from being quiet, and are no PANIC. */
const latency = (ms: number) => daemon.api("POST", "/signals", { p95_latency_ms: ms });

function submitByCurl(): string {
  const config = `header = "Authorization: Bearer ${daemon.token}"\nheader = "Content-Type: application/json"\n`;
  const words = ["--silent", "--show-error", "--fail-with-body", "--config", "-", "--data", '{"addon_id": "photos", "job_type": "index", "cost_units": 10}', `${daemon.url}/api/system/scheduler/queue/jobs/submit`];
  return JSON.parse(execFileSync("curl", words, { input: config, encoding: "utf8" })).job_id;
}

/** The names in the trace of the job, as its page gives it. */
async function steps(page: Page): Promise<string[]> {
  const download = page.waitForEvent("download");
  await page.getByTitle("Chrome and Perfetto JSON").click();
  const trace = JSON.parse(readFileSync(await (await download).path(), "utf8"));
  return trace.traceEvents.map(({ name }: { name: string }) => name);
}

test("a job walks through the house, and is cancelled from the browser down to the last fork", async () => {
  const lines = await daemon.treeWorker();
  await latency(650);
  await until("a machine that is used", async () => ["NORMAL", "BUSY"].includes((await daemon.api("GET", "/status")).nodes[0].state));
  let id = submitByCurl();
  const page = await signedIn(daemon);
  await page.goto(`jobs/${id}`);
  const why = page.locator(".why");
  const load = why.locator("li", { hasText: "not_quiet" });
  await load.getByText("measured, threshold").waitFor();
  const [measured, threshold] = (await load.locator(".meter strong").allInnerTexts()).map(Number);
  expect(measured).toBeGreaterThan(threshold ?? Number.NaN);
  // The signal that keeps it from being quiet is named.
  await load.getByRole("row", { name: /latency/ }).waitFor();
  expect(lines).toEqual(["ready"]);
  await latency(0);

  const took: number[] = [];
  for (let round = 1; round <= TRIES && !took.some((ms) => ms <= PROMPT_MS); round++) {
    if (round > 1) {
      id = submitByCurl();
      await page.goto(`jobs/${id}`);
    }
    const from = lines.length;
    const printed = () => lines.slice(from);
    await page.locator(".page-head .badge", { hasText: /running/i }).waitFor();
    await page.locator(".job-message", { hasText: "the loop has begun" }).waitFor();
    const tree = page.locator(".live-tree");
    for (const label of ["lane", "nursery", "loop"]) await tree.locator(".tree-label", { hasText: label }).first().waitFor();
    if (round === 1) {
      expect(await why.count()).toBe(0);
      await accessible(page);
      // One trace names each step so far, from the refusal down to the loop.
      const names = await steps(page);
      for (const step of ["SUBMITTED", "DENIED", "RUNNING", "attempt 1", "lease 1", `index ${id}`, "lane", "nursery", "loop"]) expect(names).toContain(step);
    }
    for (const level of LEVELS) expect(printed().some((line) => line.startsWith(`began ${level} `))).toBe(true);

    await page.locator(".page-actions").getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").getByLabel("Reason").fill("enough");
    const asked = Date.now();
    await page.getByRole("dialog").getByRole("button", { name: /^Cancel/ }).click();
    const ends = () => printed().flatMap((line) => {
      const [, level, at] = /^ended (\w+) (\d+)$/.exec(line) ?? [];
      return level ? [{ level, at: Number(at) }] : [];
    });
    await until("the end of every level", () => ends().length === LEVELS.length);
    expect(ends().map(({ level }) => level).sort()).toEqual([...LEVELS].sort());
    took.push(Math.max(...ends().map(({ at }) => at)) - asked);
    await page.locator(".page-head .badge", { hasText: /canceled/i }).waitFor();
    expect(await daemon.state(id)).toBe("CANCELED");
  }
  expect(Math.min(...took), `milliseconds from the click to the last end: ${took.join(", ")}`).toBeLessThanOrEqual(PROMPT_MS);

  // Now it has the end, too, and what was below the run as its worker told of it last: levels that end together may be gone by then.
  const names = await steps(page);
  for (const step of ["SUBMITTED", "RUNNING", "attempt 1", "lease 1", "CANCEL_REQUESTED", "CANCELED", `index ${id}`]) expect(names).toContain(step);
}, 90_000);
