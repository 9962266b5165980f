// The filter language of the list of jobs, the same as `jobtree ls` has: words that must all hold. `state:queued,running`,
// `addon:photos`, `type:index`, `tag:"two words"`, `quarantined`, `ended:1h` (in the last hour; or since a time); hexadecimal
// digits are a part of an id; other words are text that the job holds, in its payload for example.
import type { Schemas } from "./api";

export type JobState = Schemas["JobState"];
export const STATES: readonly JobState[] = ["QUEUED", "DISPATCHING", "RUNNING", "DONE", "FAILED", "CANCELED"];

/** Words that stand for several states. */
export const STATE_GROUPS: Record<string, readonly JobState[]> = {
  waiting: ["QUEUED", "DISPATCHING"],
  open: ["QUEUED", "DISPATCHING", "RUNNING"],
  ended: ["DONE", "FAILED", "CANCELED"],
};

export interface JobFilter {
  state: JobState[];
  addon_id?: string;
  job_type?: string;
  tag?: string;
  quarantined?: boolean;
  /** How long ago the job ended at most ("1h"), or since when, as it was typed. */
  ended?: string;
  /** The beginning or the end of an id. */
  id?: string;
  text?: string;
}

export interface Parsed {
  filter: JobFilter;
  /** What could not be understood, in words for the user. */
  problems: string[];
}

interface Word {
  text: string;
  from: number;
  to: number;
  quoted: boolean;
}

/** Splits at spaces; quotes hold words together. */
export function words(input: string): Word[] {
  const found: Word[] = [];
  let at = 0;
  while (at < input.length) {
    if (/\s/.test(input[at] ?? "")) {
      at++;
      continue;
    }
    const from = at;
    let text = "";
    let quoted = false;
    let inside = false;
    for (; at < input.length; at++) {
      const letter = input[at] ?? "";
      if (letter === '"') {
        inside = !inside;
        quoted = true;
      } else if (!inside && /\s/.test(letter)) break;
      else text += letter;
    }
    found.push({ text, from, to: at, quoted });
  }
  return found;
}

/** At least six digits, so that words like "bad" and "cafe" are text; all of an id is one, too. */
const ID_PART = /^(?=(?:[^0-9]*[0-9]))[0-9a-f-]{6,36}$/i;
const NAME = /^[A-Za-z0-9._:-]{1,128}$/;

const statesOf = (value: string): JobState[] | null => {
  const found: JobState[] = [];
  for (const one of value.toLowerCase().split(",")) {
    const group = STATE_GROUPS[one];
    const state = STATES.find((state) => state.toLowerCase() === one);
    if (group) found.push(...group);
    else if (state) found.push(state);
    else if (one !== "") return null;
  }
  return found;
};

const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** The time that `ended:` stands for, in milliseconds; null if it stands for none. */
export function endedSince(text: string, now: number): number | null {
  if (/^(\d+[smhd])+$/.test(text)) return now - [...text.matchAll(/(\d+)([smhd])/g)].reduce((sum, [, count, unit]) => sum + Number(count) * (UNITS[unit ?? ""] ?? 0) * 1000, 0);
  // With its zone: another daemon's clock must not read another time.
  const at = /^\d{4}-\d\d-\d\d[Tt ].*(Z|[+-]\d\d:\d\d)$/i.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? null : at;
}

/** Reads a filter. What is not understood is named, and otherwise left out. */
export function parseFilter(input: string): Parsed {
  const filter: JobFilter = { state: [] };
  const problems: string[] = [];
  const text: string[] = [];
  const once = (key: "addon_id" | "job_type" | "tag" | "id" | "ended", name: string, value: string) => {
    if (filter[key] !== undefined && filter[key] !== value) problems.push(`${name} can be given once`);
    else filter[key] = value;
  };
  for (const word of words(input)) {
    const colon = word.text.indexOf(":");
    const key = colon > 0 ? word.text.slice(0, colon).toLowerCase() : "";
    const value = word.text.slice(colon + 1);
    switch (key) {
      case "state": {
        const states = statesOf(value);
        if (states) filter.state.push(...states.filter((state) => !filter.state.includes(state)));
        else problems.push(`no state "${value}": there are ${[...STATES.map((state) => state.toLowerCase()), ...Object.keys(STATE_GROUPS)].join(", ")}`);
        break;
      }
      case "addon":
      case "type":
        if (value === "") break;
        if (NAME.test(value)) once(key === "addon" ? "addon_id" : "job_type", key, value);
        else problems.push(`"${value}" is no name of ${key === "addon" ? "an addon" : "a type"}`);
        break;
      case "tag":
        if (value !== "") once("tag", key, value);
        break;
      case "ended":
        if (value === "") break;
        if (endedSince(value, 0) !== null) once("ended", key, value);
        else problems.push(`"${value}" is no time: write 1h for the last hour, or 2026-01-02T03:04:05Z`);
        break;
      case "id":
        if (/^[0-9a-f][0-9a-f-]{0,35}$/i.test(value)) once("id", key, value);
        else if (value !== "") problems.push(`"${value}" is no part of an id`);
        break;
      default:
        if (!word.quoted && word.text === "quarantined") filter.quarantined = true;
        else if (!word.quoted && ID_PART.test(word.text)) once("id", "an id", word.text);
        else if (word.text !== "") text.push(word.text);
    }
  }
  if (text.length) filter.text = text.join(" ");
  filter.state.sort((a, b) => STATES.indexOf(a) - STATES.indexOf(b));
  return { filter, problems };
}

/** A filter as the API takes it. */
export type ApiFilter = Omit<JobFilter, "state" | "ended"> & { state?: JobState[]; ended_since?: string };

/** The query of the API for a filter. */
export function apiQuery(filter: JobFilter, now = Date.now()): ApiFilter {
  const { state, ended, ...rest } = filter;
  const since = ended === undefined ? null : endedSince(ended, now);
  return { ...rest, ...(state.length ? { state } : {}), ...(since === null ? {} : { ended_since: new Date(since).toISOString() }) };
}

/** The filter of a query that the API tells of. */
export function filterOfQuery({ state, ended_since, addon_id, job_type, tag, text, quarantined }: Schemas["JobQuery"]): JobFilter {
  const known = { addon_id, job_type, tag, text, ended: ended_since };
  const given = Object.entries(known).filter(([, value]) => value !== undefined && value !== null);
  return { state: state ?? [], ...(quarantined ? { quarantined } : {}), ...(Object.fromEntries(given) as Partial<JobFilter>) };
}

const quoted = (value: string): string => (/[\s"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value);

/** Puts the words of one key into a filter, in the place of those before; no value takes them away. */
export function withTerm(input: string, key: string, value: string | null): string {
  const rest = words(input).filter(({ text }) => !text.toLowerCase().startsWith(`${key}:`));
  const kept = rest.map(({ from, to }) => input.slice(from, to));
  return [...(value === null ? [] : [`${key}:${quoted(value)}`]), ...kept].join(" ");
}

export interface Suggestion {
  /** What the word becomes. */
  word: string;
  /** What it means. */
  about: string;
}

export interface Known {
  addons: readonly string[];
  types: readonly string[];
  tags: readonly string[];
}

const KEYS: readonly Suggestion[] = [
  { word: "state:", about: "queued, running, failed, … or waiting, open, ended" },
  { word: "addon:", about: "of this addon" },
  { word: "type:", about: "of this type" },
  { word: "tag:", about: "with this tag" },
  { word: "ended:", about: "in the last 1h, 30m, 2d; or since a time" },
  { word: "id:", about: "whose id begins or ends so" },
  { word: "quarantined", about: "that took too many workers with them" },
];

/** What the word at the cursor may become, best first. */
export function complete(input: string, cursor: number, known: Known): { from: number; to: number; suggestions: Suggestion[] } {
  const word = words(input).find(({ from, to }) => from <= cursor && cursor <= to) ?? { text: "", from: cursor, to: cursor, quoted: false };
  const typed = word.text.toLowerCase();
  const colon = typed.indexOf(":");
  let all: Suggestion[];
  if (colon < 0) all = KEYS.filter(({ word: key }) => typed === "" || key.startsWith(typed));
  else {
    const key = typed.slice(0, colon);
    const values: Record<string, readonly string[]> = { addon: known.addons, type: known.types, tag: known.tags };
    if (key === "state") {
      const before = typed.slice(colon + 1).split(",");
      const last = before.pop() ?? "";
      const have = new Set(before);
      const names = [...STATES.map((state) => state.toLowerCase()), ...Object.keys(STATE_GROUPS)];
      all = names.filter((name) => name.startsWith(last) && !have.has(name)).map((name) => ({ word: `state:${[...before, name].join(",")}`, about: STATE_GROUPS[name]?.map((state) => state.toLowerCase()).join(", ") ?? "" }));
    } else {
      const value = typed.slice(colon + 1);
      const found = (values[key] ?? []).filter((name) => name.toLowerCase().includes(value) && name.toLowerCase() !== value);
      // Those that begin so come first.
      found.sort((a, b) => Number(b.toLowerCase().startsWith(value)) - Number(a.toLowerCase().startsWith(value)));
      all = found.map((name) => ({ word: `${key}:${quoted(name)}`, about: "" }));
    }
  }
  return { from: word.from, to: word.to, suggestions: all.filter(({ word: one }) => one !== word.text).slice(0, 8) };
}

/** The words of `jobtree ls` for the same jobs. */
export function cliFilter(filter: JobFilter): string[] {
  const out: string[] = [];
  if (filter.state.length) out.push(`state:${filter.state.map((state) => state.toLowerCase()).join(",")}`);
  if (filter.addon_id) out.push(`addon:${filter.addon_id}`);
  if (filter.job_type) out.push(`type:${filter.job_type}`);
  if (filter.tag) out.push(`tag:${quoted(filter.tag)}`);
  if (filter.ended) out.push(`ended:${filter.ended}`);
  if (filter.quarantined) out.push("quarantined");
  // With a colon outside quotes it would be a key.
  if (filter.text) out.push(filter.text.includes(":") ? `"${filter.text.replaceAll('"', "")}"` : filter.text);
  return out;
}
