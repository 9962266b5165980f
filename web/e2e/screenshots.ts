// Pictures of the screens for the documentation: `npm run screenshots` writes docs/screenshots, from a daemon with made-up jobs.
import { mkdirSync } from "node:fs";
import type { Page } from "playwright-core";
import { test } from "vitest";
import { goTo, signedIn, useBrowser } from "./support/browser";
import { Daemon, until } from "./support/daemon";

useBrowser();
const FOLDER = new URL("../../docs/screenshots/", import.meta.url).pathname;
const WIDE = { width: 1280, height: 860 };
const LOOKS = {
  light: { colorScheme: "light" as const, viewport: WIDE },
  dark: { colorScheme: "dark" as const, viewport: WIDE },
  narrow: { colorScheme: "light" as const, viewport: { width: 400, height: 860 } },
};
/** The pictures: a screen in a look. The overview is not among them: its bounds would be those of the tests' policy. */
const PICTURES = [["jobs", "light"], ["job", "dark"], ["waiting", "narrow"]] as const;

/** Fills a daemon with what a home server would have. Returns the jobs that have a page of their own. */
async function fill(daemon: Daemon): Promise<{ running: string; waiting: string }> {
  const album = `
echo "reads the folder"; for n in 1 2 3 4 5 6; do echo "album $n: $((n * 37)) pictures"; done
echo '::progress 0.62 album 6 of 10'
until [ -e end ]; do sleep 0.1; done`;
  daemon.work("photos", "index", album, "--slots", "2");
  daemon.work("photos", "thumbnail", "echo '::result {\"width\": 320}'", "--slots", "2");
  daemon.work("reports", "mail", "echo 'smtp.example: connection refused' >&2; exit 65");
  const submit = async (job: Record<string, unknown>): Promise<string> => (await daemon.api("POST", "/queue/jobs/submit", { cost_units: 5, ...job })).job_id;
  const running = await submit({ addon_id: "photos", job_type: "index", cost_units: 30, payload: { path: "/photos/2026", deep: true }, tags: ["nightly", "2026"] });
  await submit({ addon_id: "photos", job_type: "index", cost_units: 20, payload: { path: "/photos/2025" } });
  for (let n = 0; n < 14; n++) await submit({ addon_id: "photos", job_type: "thumbnail", payload: { picture: n } });
  const mails = await Promise.all([1, 2, 3].map((n) => submit({ addon_id: "reports", job_type: "mail", max_attempts: 1, payload: { to: `family-${n}` } })));
  const waiting = await submit({ addon_id: "music", job_type: "transcode", priority: "HIGH", payload: { album: "Kind of Blue" }, depends_on: [running] });
  await submit({ addon_id: "music", job_type: "scan" });
  await submit({ addon_id: "reports", job_type: "nightly", earliest_start_in_sec: 30_000 });
  await daemon.api("POST", "/schedules", { name: "nightly report", cron: "0 22 * * *", job: { addon_id: "reports", job_type: "nightly", cost_units: 20 } });
  await daemon.waitFor(running, "RUNNING");
  for (const mail of mails) await daemon.waitFor(mail, "FAILED");
  await until("progress", async () => (await daemon.api("GET", `/queue/jobs/${running}`)).progress);
  return { running, waiting };
}

async function take(page: Page, name: string): Promise<void> {
  await page.waitForTimeout(600);
  await page.screenshot({ path: `${FOLDER}${name}.png`, animations: "disabled" });
}

test("every screen that the documentation shows", async () => {
  mkdirSync(FOLDER, { recursive: true });
  const daemon = await Daemon.start();
  try {
    const { running, waiting } = await fill(daemon);
    const screens = { jobs: "jobs", job: `jobs/${running}`, waiting: `jobs/${waiting}` };
    for (const [name, look] of PICTURES) {
      const page = await signedIn(daemon, LOOKS[look]);
      await goTo(page, screens[name]);
      await take(page, `${name}-${look}`);
    }
  } finally {
    await daemon.stop();
  }
}, 120_000);
