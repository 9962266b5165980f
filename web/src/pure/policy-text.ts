// The policy's TOML as far as the editor needs it: single values are read and changed where they stand, so that comments, order
// and everything else that a person wrote stay as they are. The daemon alone decides what a valid policy is.

/** A value that has a field in the editor. */
export interface PolicyField {
  /** "quiet.quiet_max". */
  readonly path: string;
  readonly label: string;
  readonly help: string;
  readonly kind: "number" | "duration" | "text" | "list";
}

/** The thresholds that are changed most; all others are changed in the text. */
export const FIELDS: readonly PolicyField[] = [
  { path: "quiet.quiet_max", label: "Quiet up to busy", help: "QUIET is entered at this busy or below", kind: "number" },
  { path: "quiet.enter_after", label: "for at least", help: "how long busy must stay low before QUIET", kind: "duration" },
  { path: "quiet.quiet_leave", label: "Quiet ends above busy", help: "at least the value for entering", kind: "number" },
  { path: "quiet.normal_max", label: "Normal up to busy", help: "BUSY above this", kind: "number" },
  { path: "quiet.busy_max", label: "Busy up to busy", help: "PANIC above this: nothing starts", kind: "number" },
  { path: "quiet.min_streak", label: "Quiet must have lasted", help: "before jobs that need quiet start", kind: "duration" },
  { path: "quiet.panic_cooldown", label: "Pause after panic", help: "how long nothing starts after PANIC", kind: "duration" },
  { path: "quiet.windows", label: "Quiet hours", help: "\"22:00-06:00 Europe/Berlin\"; none means any hour", kind: "list" },
  { path: "quiet.time_zone", label: "Time zone of the week", help: "\"Europe/Berlin\"", kind: "text" },
  { path: "busy.cpu.high", label: "CPU of other programs: full at", help: "the share, 0 to 1, that reads as busy 10", kind: "number" },
  { path: "busy.psi_io.high", label: "IO pressure: full at", help: "percent", kind: "number" },
  { path: "busy.psi_memory.high", label: "Memory pressure: full at", help: "percent", kind: "number" },
  { path: "caps.leases", label: "Leases at once", help: "live leases on this machine", kind: "number" },
  { path: "ramp.units_per_sample", label: "Units started per measurement", help: "0: no limit", kind: "number" },
];

interface Found {
  /** The line's number. */
  readonly line: number;
  /** Where the value begins and ends in the line. */
  readonly from: number;
  readonly to: number;
}

const HEADER = /^\s*\[([^[\]]+)\]\s*(?:#.*)?$/;
const PAIR = /^(\s*([A-Za-z0-9_-]+|"[^"]*")\s*=\s*)(.*)$/;

const bare = (key: string): string => key.trim().replace(/^"(.*)"$/, "$1");

/** Returns the length of the value that a text begins with: up to a comment, but not one inside of a string. */
function valueLength(text: string): number {
  let quote = "";
  for (let i = 0; i < text.length; i += 1) {
    const letter = text[i] ?? "";
    if (quote) {
      if (letter === "\\" && quote === '"') i += 1;
      else if (letter === quote) quote = "";
    } else if (letter === '"' || letter === "'") quote = letter;
    else if (letter === "#") return text.slice(0, i).trimEnd().length;
  }
  return text.trimEnd().length;
}

function find(lines: readonly string[], path: string): { found: Found | undefined; end: Map<string, number> } {
  let section = "";
  /** The last line of each section that is not empty. */
  const end = new Map<string, number>();
  let found: Found | undefined;
  lines.forEach((text, line) => {
    const header = HEADER.exec(text);
    if (header) {
      section = ((header[1] ?? "").match(/"[^"]*"|[^.]+/g) ?? []).map(bare).join(".");
      end.set(section, line);
      return;
    }
    if (text.trim()) end.set(section, line);
    const pair = PAIR.exec(text);
    if (!pair) return;
    const key = bare(pair[2] ?? "");
    const whole = section ? `${section}.${key}` : key;
    if (whole !== path) return;
    const from = (pair[1] ?? "").length;
    found = { line, from, to: from + valueLength(pair[3] ?? "") };
  });
  return { found, end };
}

/** Returns the value at a path as it is written, or undefined if the text does not set it. */
export function readValue(text: string, path: string): string | undefined {
  const lines = text.split("\n");
  const { found } = find(lines, path);
  return found && lines[found.line]?.slice(found.from, found.to);
}

/** Returns a value that is a number. */
export function readNumber(text: string, path: string): number | undefined {
  const value = readValue(text, path);
  if (value === undefined || value.trim() === "") return undefined;
  const number = Number(value.replaceAll("_", ""));
  return Number.isNaN(number) ? undefined : number;
}

/** Returns a value without its quotes. */
export function readText(text: string, path: string): string | undefined {
  const value = readValue(text, path);
  return value?.replace(/^(["'])(.*)\1$/, "$2");
}

/** Sets a value, as it is to be written, and leaves every other character as it is. */
export function writeValue(text: string, path: string, value: string): string {
  const lines = text.split("\n");
  const { found, end } = find(lines, path);
  if (found) {
    const line = lines[found.line] ?? "";
    lines[found.line] = line.slice(0, found.from) + value + line.slice(found.to);
    return lines.join("\n");
  }
  const dot = path.lastIndexOf(".");
  const section = dot < 0 ? "" : path.slice(0, dot);
  const pair = `${path.slice(dot + 1)} = ${value}`;
  const after = end.get(section);
  if (after !== undefined) lines.splice(after + 1, 0, pair);
  else if (section === "") lines.unshift(pair);
  else {
    while (lines.length && !lines[lines.length - 1]?.trim()) lines.pop();
    if (lines.length) lines.push("");
    lines.push(`[${section}]`, pair, "");
  }
  return lines.join("\n");
}

/** Writes what a person typed into a field as a TOML value. */
export function written(kind: PolicyField["kind"], typed: string): string {
  const text = typed.trim();
  switch (kind) {
    case "number":
      return text;
    case "duration":
    case "text":
      return JSON.stringify(text);
    case "list":
      return `[${text
        .split("\n")
        .map((one) => one.trim())
        .filter(Boolean)
        .map((one) => JSON.stringify(one))
        .join(", ")}]`;
  }
}

/** Turns a TOML value into what stands in the field. */
export function typed(kind: PolicyField["kind"], value: string | undefined): string {
  if (value === undefined) return "";
  if (kind === "list") return [...value.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'/g)].map((match) => match[1] ?? match[2] ?? "").join("\n");
  return value.replace(/^(["'])(.*)\1$/, "$2");
}

/** Returns the paths whose values differ between two texts, of those that have a field. */
export function changedFields(before: string, after: string): PolicyField[] {
  return FIELDS.filter((field) => readValue(before, field.path) !== readValue(after, field.path));
}
