// A headless Chromium, and pages in which nothing may go wrong unseen: an error of a script, something that the content security
// policy refuses, or a call to another host fails the test that it happens in.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { extname, join } from "node:path";
import { type Browser, type BrowserContext, type BrowserContextOptions, type Page, chromium } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Daemon } from "./daemon";

const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** A folder with a build of the dashboard (`vite build --outDir`) that is tested in place of the one in the daemon, while one works on it. */
const BUILD = process.env.JOBTREE_WEB;
const TYPES: Record<string, string> = { ".js": "text/javascript", ".css": "text/css" };

/** Answers with the files of another build, under the daemon's own headers. */
async function replaceFiles(context: BrowserContext, folder: string): Promise<void> {
  await context.route(/^[^?]*\/assets\/[^/]+$/, (route) => {
    const file = join(folder, "assets", route.request().url().split("/").at(-1) ?? "");
    return existsSync(file) ? route.fulfill({ path: file, contentType: TYPES[extname(file)] ?? "application/octet-stream" }) : route.continue();
  });
  await context.route(
    () => true,
    async (route) => {
      if (route.request().resourceType() !== "document") return route.fallback();
      const response = await route.fetch();
      const [base] = /<base href="[^"]*" \/>/.exec(await response.text()) ?? [""];
      return route.fulfill({ response, body: readFileSync(join(folder, "index.html"), "utf8").replace(/<base href="[^"]*" \/>/, base) });
    },
  );
}

let browser: Browser;
let contexts: BrowserContext[] = [];
let problems: string[] = [];

/** Starts the browser for the tests of a file. */
export function useBrowser(): void {
  beforeAll(async () => {
    const executablePath = PLACES.find((place) => place && existsSync(place));
    if (!executablePath) throw new Error("chromium is missing: apt-get install chromium, or set CHROMIUM to it");
    browser = await chromium.launch({ executablePath, args: FLAGS });
  });
  afterEach(async () => {
    await Promise.all(contexts.map((context) => context.close()));
    contexts = [];
    const found = problems;
    problems = [];
    expect(found, "problems in the browser").toEqual([]);
  });
  afterAll(async () => {
    await browser?.close();
  });
}

/** Problems that were seen in this test so far. Taken from here, they are expected. */
export function takeProblems(): string[] {
  const found = problems;
  problems = [];
  return found;
}

/** A browser of its own, that has signed in nowhere. */
export async function newPage(daemon: Daemon, options: BrowserContextOptions = {}): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, baseURL: `${daemon.url}/`, locale: "en-GB", timezoneId: "UTC", reducedMotion: "reduce", ...options });
  contexts.push(context);
  context.setDefaultTimeout(10_000);
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== daemon.url && !["blob:", "data:"].includes(url.protocol)) problems.push(`a call to ${url.href}`);
  });
  context.on("weberror", (error) => problems.push(`an error: ${error.error().stack ?? error.error()}`));
  context.on("console", (message) => {
    if (/content security policy|trusted/i.test(message.text())) problems.push(message.text());
  });
  if (BUILD) await replaceFiles(context, BUILD);
  return context.newPage();
}

/** Goes to a screen as a link of the page does, and waits until it shows what it read. */
export async function goTo(page: Page, screen: string): Promise<void> {
  const read = page.waitForResponse((response) => response.url().includes("/api/system/scheduler/"), { timeout: 2000 }).catch(() => {});
  await page.evaluate((to) => {
    history.pushState(null, "", new URL(to, document.baseURI));
    dispatchEvent(new PopStateEvent("popstate"));
  }, screen);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await read;
  await page.waitForTimeout(150);
}

/** A page of a browser that has signed in with a token; the admin's if none is given. */
export async function signedIn(daemon: Daemon, options: BrowserContextOptions = {}, token?: string): Promise<Page> {
  const page = await newPage(daemon, options);
  await page.goto(await daemon.link(token));
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  return page;
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Violation {
  id: string;
  nodes: { html: string; failureSummary?: string }[];
}

/** What axe finds wrong with the page as it is. */
export async function violations(page: Page): Promise<string[]> {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe);
  const found = await page.evaluate(() => (globalThis as unknown as { axe: { run: (options: unknown) => Promise<{ violations: Violation[] }> } }).axe.run({ resultTypes: ["violations"] }));
  return found.violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 300)} ${failureSummary ?? ""}`));
}

/** Fails unless axe finds nothing wrong, with a dialog that is open for example. */
export async function accessible(page: Page): Promise<void> {
  expect(await violations(page)).toEqual([]);
}
