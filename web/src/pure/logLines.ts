// A job's output as lines, each with the place of its first byte, the time at which it was received, and the attempt that wrote it.
import type { Schemas } from "../api";
import { instant } from "../time";

export interface Line {
  place: number;
  text: string;
  at: number | null;
}

const encoder = new TextEncoder();
// Colours and other commands for a terminal, which a page does not follow.
const CONTROL = new RegExp(`${String.fromCharCode(27)}(?:\\[[0-9;?]*[ -/]*[@-~]|\\][^${String.fromCharCode(7)}]*(?:${String.fromCharCode(7)}|$)|[@-Z\\\\-_])`, "g");

/** What a terminal would show of a line: the last thing that was written over it, without commands. */
export function plain(text: string): string {
  const shown = text.replace(CONTROL, "").replace(/\r+$/, "");
  return shown.slice(shown.lastIndexOf("\r") + 1);
}

export class LogLines {
  lines: Line[] = [];
  /** Where to go on reading. */
  next = 0;
  leftOut = 0;
  ended = false;
  private raw: string[] = [];
  private open = false;
  private at: number | null = null;
  private rest = "";

  /** Adds the page that was read after `next`. Returns true if there was something in it. */
  add(page: Pick<Schemas["LogPage"], "text" | "next" | "ended" | "left_out" | "times">): boolean {
    const begin = page.next - encoder.encode(page.text).length;
    this.leftOut = page.left_out ?? 0;
    this.ended = page.ended;
    this.next = page.next;
    if (page.text === "") return false;
    this.raw.push(page.text);
    const times = (page.times ?? []).map(({ place, at }) => ({ place, at: instant(at) }));
    let time = 0;
    let place = begin;
    for (const [index, part] of page.text.split("\n").entries()) {
      while (time < times.length && (times[time]?.place ?? 0) <= place) this.at = times[time++]?.at ?? null;
      if (index === 0 && this.open) {
        this.rest += part;
        const last = this.lines.at(-1);
        if (last) last.text = plain(this.rest);
      } else {
        this.rest = part;
        this.lines.push({ place, text: plain(part), at: this.at });
      }
      place += encoder.encode(part).length + 1;
    }
    // What follows the last line break is the beginning of a line, or nothing yet.
    this.open = true;
    return true;
  }

  /** The lines that there are; an empty one at the end is a line that has not begun. */
  get shown(): Line[] {
    return this.lines.at(-1)?.text === "" ? this.lines.slice(0, -1) : this.lines;
  }

  /** The output as it was written. */
  get whole(): string {
    return this.raw.join("");
  }
}

/** The lines of one attempt, by the times at which attempts began and ended. */
export function ofAttempt(lines: readonly Line[], from: number, to: number | undefined): Line[] {
  return lines.filter((line) => line.at === null || (line.at >= from - 50 && (to === undefined || line.at <= to + 50)));
}

/** The indices of the lines that hold the text, in upper or lower case. */
export function search(lines: readonly Line[], text: string): number[] {
  const wanted = text.toLowerCase();
  if (wanted === "") return [];
  const found: number[] = [];
  for (const [index, line] of lines.entries()) if (line.text.toLowerCase().includes(wanted)) found.push(index);
  return found;
}
