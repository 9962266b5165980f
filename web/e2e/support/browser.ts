// A headless Chromium, and pages in which nothing may go wrong unseen: an error of a script, something that the content security
// policy refuses, or a call to another host fails the test that it happens in.
import { existsSync } from "node:fs";
import { type Browser, type BrowserContext, type BrowserContextOptions, type Page, chromium } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Daemon } from "./daemon";

const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

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
