// Every screen with hostile data in it: accessible, in light and dark, at 400 pixels, and harmless.
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { goTo, signedIn, useBrowser, violations } from "./support/browser";
import { Daemon } from "./support/daemon";

/** Texts that would do something if they were taken for markup, script, an address or a format. */
const ATTACKS = [
  "<script>window.attacked = 1</script>",
  "<img src=x onerror='window.attacked = 2'>",
  "\"><svg onload=window.attacked=3>",
  "javascript:window.attacked=4",
  "<iframe srcdoc='<script>parent.attacked = 5</script>'></iframe>",
  "<a href='javascript:window.attacked=6'>click</a>",
  "<style>*{display:none}</style>",
  "{{constructor.constructor('window.attacked=7')()}}",
  "${window.attacked=8}",
  "<base href='http://127.0.0.1:9/'>",
  "<form action='http://127.0.0.1:9/'><button id=attacked>send</button></form>",
  "</pre></td></script><meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
  "\u001b[31mred\u001b[0m \u202edlrow\u202c \u0000",
  "__proto__",
  "https://evil.example/?q=<b>",
];

useBrowser();
let daemon: Daemon;
const jobs: Record<string, string> = {};

beforeAll(async () => {
  daemon = await Daemon.start();
  const attack = (at: number) => ATTACKS[at % ATTACKS.length] ?? "";
  // A program prints them all, fails with one, and another tells its progress with one.
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''").replaceAll("\u0000", "")}'`;
  daemon.work("photos", "fails", `${ATTACKS.map((text) => `printf '%s\\n' ${quoted(text)}`).join("\n")}\nprintf '%s\\n' ${ATTACKS.slice(0, 3).map(quoted).join(" ")} >&2\nexit 65`);
  daemon.work("photos", "runs", `echo "::progress 0.3 "${quoted(attack(1))}\nuntil [ -e end ]; do sleep 0.1; done`);
  const payload: Record<string, unknown> = Object.fromEntries(ATTACKS.map((text, index) => [`${index} ${text}`, { text, list: [text] }]));
  const submit = async (name: string, job: Record<string, unknown>) => {
    const body = { addon_id: "photos", cost_units: 1, payload, tags: ATTACKS.slice(0, 8).map((text) => text.slice(0, 60)), ...job };
    jobs[name] = (await daemon.api("POST", "/queue/jobs/submit", body)).job_id;
  };
  await submit("failed", { job_type: "fails", max_attempts: 1 });
  await submit("running", { job_type: "runs" });
  await submit("waiting", { job_type: "none", concurrency_key: attack(1), unique_key: attack(2) });
  await submit("depending", { job_type: "none", depends_on: [jobs.waiting] });
  await submit("cancelled", { job_type: "none" });
  await daemon.api("POST", `/queue/jobs/${jobs.cancelled}/cancel`, { reason: attack(0) });
  await daemon.api("POST", "/queue/pause", { addon_id: "music", reason: attack(1) });
  await daemon.api("POST", "/schedules", { name: attack(1), cron: "0 3 * * *", job: { addon_id: "photos", job_type: "none", cost_units: 1, payload } });
  await daemon.newToken(attack(1), ["read"]);
  await daemon.waitFor(jobs.failed ?? "", "FAILED");
  await daemon.waitFor(jobs.running ?? "", "RUNNING");
});
afterAll(() => daemon.stop());

const SCREENS = ["", "jobs", "jobs?q=state:failed", "addons", "workers", "leases", "schedules", "machines", "quiet", "decisions", "tokens", "wall", "bulk", "nowhere", "jobs/failed", "jobs/running", "jobs/waiting", "jobs/depending", "jobs/cancelled"];

/** Goes to a screen; a job is named by what is the matter with it. */
async function open(page: Page, screen: string): Promise<void> {
  const [, name] = /^jobs\/(\w+)$/.exec(screen) ?? [];
  await goTo(page, name ? `jobs/${jobs[name]}` : screen);
}

describe.each([
  { look: "light and wide", options: { colorScheme: "light" as const } },
  { look: "dark at 400 pixels", options: { colorScheme: "dark" as const, viewport: { width: 400, height: 800 } } },
])("in $look", ({ options }) => {
  test("every screen is accessible, fits, and takes no data for markup", async () => {
    const page = await signedIn(daemon, options);
    const wrong: string[] = [];
    let dialogs = 0;
    page.on("dialog", (dialog) => {
      dialogs++;
      return dialog.dismiss();
    });
    for (const screen of SCREENS) {
      await open(page, screen);
      wrong.push(...(await violations(page)).map((text) => `/${screen}: ${text}`));
      const seen = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        attacked: (globalThis as { attacked?: unknown }).attacked,
        planted: document.querySelectorAll("main script, main iframe, main style, main base, main meta, main form[action], img[src='x'], #attacked, [onerror], [onload], a[href^='javascript:'], a[href*='evil.example']").length,
        background: getComputedStyle(document.body).backgroundColor,
      }));
      if (seen.wide > 0) wrong.push(`/${screen}: is ${seen.wide} pixels too wide`);
      if (seen.attacked !== undefined) wrong.push(`/${screen}: attack ${seen.attacked} succeeded`);
      if (seen.planted) wrong.push(`/${screen}: ${seen.planted} elements come from data`);
      const dark = seen.background === "rgb(17, 19, 22)";
      if (dark !== (options.colorScheme === "dark")) wrong.push(`/${screen}: the background is ${seen.background}`);
    }
    expect(wrong).toEqual([]);
    expect(dialogs).toBe(0);
  });
});

test("hostile texts are shown as they are", async () => {
  const page = await signedIn(daemon);
  await open(page, "jobs/failed");
  const shown = await page.locator("main").innerText();
  for (const text of ATTACKS.slice(0, 3)) expect(shown).toContain(text);
  const log = await page.locator(".log, .log-box, pre, [class*=log]").allInnerTexts();
  expect(log.join("\n")).toContain("<script>window.attacked = 1</script>");
  await open(page, "schedules");
  await page.locator("main").getByText("<img src=x onerror=").first().waitFor();
});
