// Times for people: short and relative where they are read at a glance, exact where somebody looks closer. One clock ticks for
// the whole page, so that a thousand ages cost one timer.
import { signal } from "@preact/signals";

/** The time by this browser's clock, in milliseconds, a second old at most while the page is seen. */
export const now = signal(Date.now());

if (typeof document !== "undefined") {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) now.value = Date.now();
  });
}

const UNITS: [string, number][] = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** Returns a span in at most two units: "3 min 20 s", "2 d 4 h", "0.4 s". */
export function span(seconds: number): string {
  const sign = seconds < 0 ? "−" : "";
  const all = Math.abs(seconds);
  if (all < 0.0995) return `${sign}${Math.round(all * 1000)} ms`;
  if (all < 9.95) return `${sign}${(Math.round(all * 10) / 10).toString()} s`;
  let rest = Math.round(all);
  // Beyond an hour seconds are noise, beyond a day minutes are.
  if (rest >= 3600) rest = Math.round(rest / 60) * 60;
  if (rest >= 86_400) rest = Math.round(rest / 3600) * 3600;
  const parts: string[] = [];
  for (const [name, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${name}`);
    if (parts.length === 2) break;
  }
  return sign + parts.join(" ");
}

/** Returns a span in one unit, for dense tables: "3m", "2d", "40s". */
export function shortSpan(seconds: number): string {
  const all = Math.abs(seconds);
  if (all < 60) return `${Math.round(all)}s`;
  if (all < 3600) return `${Math.floor(all / 60)}m`;
  if (all < 86_400) return `${Math.floor(all / 3600)}h`;
  return `${Math.floor(all / 86_400)}d`;
}

/** Returns how long ago or ahead a time is: "3 min ago", "in 2 h", "now". */
export function relative(at: number, from: number): string {
  const seconds = Math.round((at - from) / 1000);
  if (Math.abs(seconds) < 2) return "now";
  const one = span(Math.abs(seconds)).split(" ").slice(0, 2).join(" ");
  return seconds < 0 ? `${one} ago` : `in ${one}`;
}

/** Reads a time of the API, in milliseconds; null for what is absent or no time. */
export function instant(text: string | null | undefined): number | null {
  if (!text) return null;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** Returns the exact time in the browser's zone with its offset: "2026-11-19 03:25:00.123 +01:00". */
export function exactTime(at: number): string {
  const date = new Date(at);
  const offset = -date.getTimezoneOffset();
  const zone = `${offset < 0 ? "−" : "+"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(at)}.${String(date.getMilliseconds()).padStart(3, "0")} ${zone}`;
}

/** Returns the time of the day: "03:25:00". */
export function clock(at: number): string {
  const date = new Date(at);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Returns the time of the day, with the date unless it is today's: "14:05", "2026-11-20 14:05". */
export function shortTime(at: number, from: number): string {
  const day = (time: number) => exactTime(time).slice(0, 10);
  const time = clock(at).slice(0, 5);
  return day(at) === day(from) ? time : `${day(at)} ${time}`;
}

/** Returns the value for an `<input type="datetime-local">`. */
export function inputTime(at: number): string {
  const date = new Date(at);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}`;
}
