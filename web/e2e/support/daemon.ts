// A daemon of a test's own, over a folder that goes with it: the program as it is installed, with SQLite and its admin's token.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

const repository = new URL("../../../", import.meta.url).pathname;
const target = process.env.CARGO_TARGET_DIR ?? join(repository, "target");
const program = process.env.JOBTREE_BIN ?? join(target, "debug/jobtree");
/** The policy that a new user gets, but for the load of this machine. */
const ALWAYS = join(repository, "crates/cli/tests/support/always.toml");
const API = "/api/system/scheduler";

/** Waits until `check` returns something; its errors count as nothing. */
export async function until<T>(what: string, check: () => Promise<T | undefined | null | false> | T | undefined | null | false): Promise<T> {
  const end = Date.now() + 20_000;
  let last: unknown;
  do {
    try {
      const found = await check();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    await new Promise((done) => setTimeout(done, 50));
  } while (Date.now() < end);
  throw new Error(`waited in vain: ${what}`, { cause: last });
}

export class Daemon {
  readonly folder = mkdtempSync(join(tmpdir(), "jobtree-e2e-"));
  url = "";
  private process: ChildProcess | undefined;
  private readonly beside: ChildProcess[] = [];

  private constructor(private readonly more: readonly string[]) {}

  static async start(...more: string[]): Promise<Daemon> {
    const daemon = new Daemon(more);
    // Of its own: a policy that is applied is written there.
    copyFileSync(ALWAYS, daemon.policyFile);
    await daemon.begin("127.0.0.1:0");
    return daemon;
  }

  private get policyFile(): string {
    return join(this.folder, "policy.toml");
  }

  private get environment() {
    return { PATH: process.env.PATH, HOME: this.folder, TMPDIR: this.folder, TZ: "UTC", JOBTREE_DATA_DIR: join(this.folder, "data"), JOBTREE_URL: this.url || "http://127.0.0.1:1" };
  }

  /** Begins to serve, at the address of before if there was one. */
  async begin(listen = new URL(this.url).host): Promise<void> {
    const child = spawn(program, ["serve", "--policy", this.policyFile, "--listen", listen, ...this.more], { env: this.environment, cwd: this.folder, stdio: ["ignore", "pipe", "pipe"] });
    let told = "";
    child.stderr.on("data", (data) => (told += data));
    const [line] = await Promise.race([once(createInterface(child.stdout), "line"), once(child, "exit").then(() => [""])]);
    if (!line) throw new Error(`the daemon did not start: ${told}`);
    this.process = child;
    this.url = line;
    await until("the first sample", async () => (await this.api("GET", "/status")).nodes[0]?.stale === false);
  }

  /** Ends it, and leaves its data for the next start. */
  async end(): Promise<void> {
    const child = this.process;
    this.process = undefined;
    if (!child || child.exitCode !== null) return;
    child.kill("SIGTERM");
    await once(child, "exit");
  }

  /** Ends it and all that runs beside it, and forgets its folder. */
  async stop(): Promise<void> {
    for (const child of this.beside) child.kill("SIGKILL");
    await this.end();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Runs the command, and returns what it prints. */
  run(...words: string[]): string {
    return execFileSync(program, words, { env: this.environment, cwd: this.folder, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
  }

  /** Submits a job, and returns its id. */
  submit(addon: string, type: string, ...more: string[]): string {
    return this.run("submit", addon, type, "-q", ...more);
  }

  /** A worker for jobs of a type: a shell program, which runs beside the test. */
  work(addon: string, type: string, script: string, ...more: string[]): void {
    const file = join(this.folder, `${addon}-${type}.sh`);
    writeFileSync(file, script);
    const words = ["work", "-q", "--addon", addon, "--type", type, ...more, "--", "sh", file];
    this.beside.push(spawn(program, words, { env: this.environment, cwd: this.folder, stdio: "ignore" }));
  }

  /** A worker of ours, whose jobs have a tree below them (`crates/client/examples/tree_worker.rs`). Returns the lines that it prints. */
  async treeWorker(): Promise<readonly string[]> {
    const file = process.env.JOBTREE_TREE_WORKER ?? join(dirname(program), "examples/tree_worker");
    if (!existsSync(file)) throw new Error(`${file} is missing: cargo build -p jobtree-client --example tree_worker`);
    const child = spawn(file, [], { env: { ...this.environment, JOBTREE_URL: this.url, JOBTREE_TOKEN: this.token }, cwd: this.folder, stdio: ["ignore", "pipe", "ignore"] });
    this.beside.push(child);
    const lines: string[] = [];
    createInterface(child.stdout).on("line", (line) => lines.push(line));
    await until("the worker", () => lines.includes("ready"));
    return lines;
  }

  /** A file in the folder, which scripts wait for. */
  touch(name: string): void {
    writeFileSync(join(this.folder, name), "");
  }

  /** The admin's token; none for a daemon that asks for none. */
  get token(): string {
    const file = join(this.folder, "data/admin.token");
    return existsSync(file) ? readFileSync(file, "utf8").trim() : "none";
  }

  async api(method: string, path: string, body?: unknown, token = this.token): Promise<any> {
    const response = await fetch(this.url + API + path, {
      method,
      headers: { Authorization: `Bearer ${token}`, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === "" ? null : JSON.parse(text);
  }

  /** The policy in force, as TOML. */
  async policy(): Promise<string> {
    return (await fetch(`${this.url}${API}/policy`, { headers: { Authorization: `Bearer ${this.token}` } })).text();
  }

  /** Puts another policy in force. */
  async setPolicy(policy: string): Promise<void> {
    const response = await fetch(`${this.url}${API}/policy`, { method: "PUT", headers: { Authorization: `Bearer ${this.token}`, "Content-Type": "application/toml" }, body: policy });
    if (!response.ok) throw new Error(`the policy was refused: ${await response.text()}`);
  }

  /** The state of a job. */
  async state(id: string): Promise<string> {
    return (await this.api("GET", `/queue/jobs/${id}`)).state;
  }

  async waitFor(id: string, state: string): Promise<void> {
    await until(`job ${id} is ${state}`, async () => (await this.state(id)) === state);
  }

  /** A token with these scopes. */
  async newToken(name: string, scopes: string[], more: Record<string, unknown> = {}): Promise<{ token: string; token_id: string }> {
    return this.api("POST", "/tokens", { name, scopes, ...more });
  }

  /** A link that signs in one browser with the rights of a token. */
  async link(token = this.token): Promise<string> {
    const { code } = await this.api("POST", "/sign-in-links", undefined, token);
    return `${this.url}/enter#${code}`;
  }
}
