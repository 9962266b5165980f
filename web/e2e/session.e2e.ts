// Signing in and out: links, cookies, roles, and the end of a session.
import { createServer, request as forward } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { goTo, newPage, signedIn, useBrowser } from "./support/browser";
import { Daemon, until } from "./support/daemon";

useBrowser();

describe("a session", () => {
  let daemon: Daemon;
  beforeAll(async () => {
    daemon = await Daemon.start();
  });
  afterAll(() => daemon.stop());

  test("begins with a link, which leaves no secret behind", async () => {
    const link = daemon.run("dashboard", "-q");
    const code = link.split("#")[1] ?? "";
    expect(code).toHaveLength(64);
    const page = await newPage(daemon);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.goto(link);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    expect(new URL(page.url()).hash).toBe("");
    expect(asked.filter((url) => url.includes(code))).toEqual([]);
    const kept = await page.evaluate(() => [document.cookie, ...Object.values(localStorage), ...Object.values(sessionStorage), location.href].join("\n"));
    expect(kept).not.toContain(code);
    expect(kept).not.toContain("jobtree_session");
    const [cookie] = await page.context().cookies(`${daemon.url}/api/system/scheduler/status`);
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict", path: "/api/system/scheduler", secure: false });
    expect(kept).not.toContain(cookie?.value);
    // Nor can one go back to it.
    await page.goBack();
    expect(page.url()).not.toContain(code);

    // Another browser does not get in with the same link.
    const other = await newPage(daemon);
    await other.goto(link);
    await other.getByText("was used already, or is older than a minute").waitFor();
    await other.getByText("jobtree dashboard", { exact: true }).waitFor();
    expect(other.url()).not.toContain(code);
  });

  test("is asked for, and leads back to the screen that was wanted", async () => {
    const page = await newPage(daemon);
    await page.goto("jobs?q=state:failed");
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    await page.getByLabel("Link").fill(await daemon.link());
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
    expect(decodeURIComponent(page.url())).toBe(`${daemon.url}/jobs?q=state:failed`);
    // Signing out leaves nothing on the screen, and the cookie is gone.
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    expect(await page.getByRole("heading", { name: "Jobs", exact: true }).count()).toBe(0);
    expect(await page.context().cookies(`${daemon.url}/api/system/scheduler/`)).toEqual([]);
    await page.goto("jobs");
    await page.getByRole("button", { name: "Sign in" }).waitFor();
  });

  test("that only reads shows no buttons", async () => {
    const waiting = daemon.submit("photos", "index", "--after", "2999-01-01T00:00:00Z");
    const cancelled = daemon.submit("photos", "index");
    daemon.run("cancel", cancelled);
    const { token } = await daemon.newToken("reader", ["read"]);
    const changes = /^(Cancel|Retry|Run now|Edit|Pause|Resume|Revoke|Delete|Remove|Create|Apply|Drain|New|Add)\b/;
    const screens = ["", "jobs", `jobs/${waiting}`, `jobs/${cancelled}`, "addons", "leases", "schedules", "quiet", "tokens", "bulk"];
    const buttons = async (token?: string) => {
      const page = await signedIn(daemon, {}, token);
      const found: string[] = [];
      for (const screen of screens) {
        await goTo(page, screen);
        const names = await page.locator("main button:visible, main input[type=checkbox]:visible").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label") ?? one.textContent?.trim() ?? ""));
        found.push(...names.filter((name) => changes.test(name) || name.startsWith("Select")).map((name) => `/${screen}: ${name}`));
      }
      return found;
    };
    expect(await buttons(token)).toEqual([]);
    // An admin sees them in the same places, or this test sees nothing.
    const admins = await buttons();
    for (const one of ["/jobs: Select all that match", `/jobs/${waiting}: Cancel`, `/jobs/${waiting}: Run now`, `/jobs/${cancelled}: Retry`]) expect(admins).toContain(one);
  });

  test("ends with its token, says so, and goes on after another link", async () => {
    const { token, token_id } = await daemon.newToken("short", ["read"]);
    const page = await signedIn(daemon, {}, token);
    await page.goto("jobs?q=addon:photos");
    await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
    await daemon.api("DELETE", `/tokens/${token_id}`);
    // Its event stream ends at once, and the page asks who it is.
    await page.getByText("The session has ended.").waitFor();
    await page.getByRole("link", { name: "Sign in again" }).click();
    await page.getByLabel("Link").fill(await daemon.link());
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
    expect(decodeURIComponent(page.url())).toBe(`${daemon.url}/jobs?q=addon:photos`);
    expect(await page.getByText("The session has ended.").count()).toBe(0);
  });

  test("that was begun anew in another tab goes on in this one", async () => {
    const page = await signedIn(daemon);
    const job = daemon.submit("photos", "index", "--after", "2999-01-01T00:00:00Z");
    await page.goto(`jobs/${job}`);
    await page.getByRole("button", { name: "Cancel" }).waitFor();
    const other = await page.context().newPage();
    await other.goto(await daemon.link());
    await other.getByRole("heading", { name: "Overview" }).waitFor();
    // The header that this page knows belongs to the session of before.
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").getByRole("button", { name: /^Cancel/ }).click();
    await daemon.waitFor(job, "CANCELED");
  });

  test("works below a path prefix", async () => {
    const prefix = "/queue/of/jobs";
    const { host, port } = new URL(daemon.url);
    const seen: string[] = [];
    const proxy = createServer((request, response) => {
      const url = request.url ?? "";
      seen.push(url);
      if (!url.startsWith(`${prefix}/`)) {
        response.writeHead(404).end();
        return;
      }
      const passed = forward({ host: "127.0.0.1", port, path: url.slice(prefix.length), method: request.method, headers: request.headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      });
      passed.on("error", () => response.destroy());
      response.on("close", () => passed.destroy());
      request.pipe(passed);
    });
    await new Promise<void>((done) => proxy.listen(0, "127.0.0.1", done));
    const base = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${prefix}`;
    try {
      const job = daemon.submit("photos", "index", "--after", "2999-01-01T00:00:00Z");
      const page = await newPage({ ...daemon, url: new URL(base).origin } as Daemon);
      await page.goto(daemon.run("dashboard", "-q", "--at", base));
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      const [cookie] = await page.context().cookies(`${base}/api/system/scheduler/status`);
      expect(cookie?.path).toBe(`${prefix}/api/system/scheduler`);
      // A screen that lies deeper, opened by its address, with its files, calls, links and events.
      await page.goto(`${base}/jobs/${job}`);
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("dialog").getByRole("button", { name: /^Cancel/ }).click();
      await page.getByText("CANCELED").or(page.getByText("Cancelled")).first().waitFor();
      await page.getByRole("navigation").getByRole("link", { name: "Jobs", exact: true }).click();
      expect(page.url()).toBe(`${base}/jobs`);
      await page.getByText("Live", { exact: true }).waitFor();
      expect(seen.filter((url) => !url.startsWith(prefix))).toEqual([]);
      expect(host).not.toBe(new URL(base).host);
    } finally {
      proxy.closeAllConnections();
      proxy.close();
    }
  });
});

test("a daemon without tokens asks nobody to sign in", async () => {
  const daemon = await Daemon.start("--no-auth");
  try {
    const page = await newPage(daemon);
    await page.goto(daemon.run("dashboard", "-q"));
    await page.getByText("no sign-in needed").waitFor();
    expect(await page.getByRole("button", { name: "Sign out" }).count()).toBe(0);
    await until("the first screen", async () => (await page.getByRole("heading", { name: "No jobs yet" }).count()) + (await page.getByText("No jobs yet").count()) > 0);
  } finally {
    await daemon.stop();
  }
});
