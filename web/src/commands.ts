// The command lines that the dashboard shows, to be copied into a terminal. All of them are made here: `commands.test.ts` writes
// each into `commands.json`, which a test of the command itself parses (`crates/cli/src/shown_commands.rs`), and finds any that is
// written elsewhere.
import { type JobFilter, cliFilter } from "./filter";

/** A command line for a POSIX shell that the command understands. */
export type Line = string & { readonly line: true };

/** Quotes a word for a POSIX shell where it needs it. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

const line = (...words: string[]): Line => ["jobtree", ...words.map(quoted)].join(" ") as Line;

export const commands = {
  dashboard: () => line("dashboard"),
  status: () => line("status"),
  run: () => line("run", "--", "echo", "hello"),
  runLong: () => line("run", "--", "sleep", "60"),
  submit: () => line("submit", "photos", "index", "--cost", "10"),
  submitPayload: () => line("submit", "photos", "index", "--payload", '{"path":"/photos"}'),
  work: () => line("work", "--addon", "photos", "--type", "index", "--", "./my-worker"),
  serveRunner: () => line("serve", "--runner"),
  serveMachine: () => line("serve", "--node", "garage", "--store", "postgres://db.example/jobtree"),
  workers: () => line("workers"),
  policy: () => line("policy", "show"),
  leases: () => line("lease", "ls"),
  requestLease: () => line("lease", "request", "photos", "thumbnails", "--cost", "20"),
  schedules: () => line("schedule", "ls"),
  addSchedule: () => line("schedule", "add", "nightly", "0 3 * * *", "photos", "index", "--zone", "Europe/Berlin"),
  addCommandSchedule: () => line("schedule", "add", "backup", "@daily", "--", "tar", "cf", "backup.tar", "."),
  tokens: () => line("token", "ls"),
  createToken: () => line("token", "create", "photos", "--addon", "photos", "--scope", "submit", "--scope", "read"),
  show: (job: string) => line("show", job),
  /** The jobs of a filter. A part of an id names its job, and `ls` knows no ids. */
  list: (filter: JobFilter) => (filter.id ? line("show", filter.id) : line("ls", ...cliFilter(filter))),
} satisfies Record<string, (...of: never[]) => Line>;
