// The week as a grid of hours: how busy this machine was at each hour of each weekday, and how sure that is.

/** An average over some minutes that begin at `at`. */
export interface HourSample {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** 0 (idle) to 10. */
  readonly busy: number;
  /** How many minutes were measured. */
  readonly minutes: number;
  /** Of them, how many the machine was QUIET. */
  readonly quiet: number;
}

export interface HeatCell {
  /** 0 is Monday. */
  readonly day: number;
  readonly hour: number;
  /** The mean of busy; undefined if nothing was measured. */
  readonly busy: number | undefined;
  /** The part of the time in which the machine was QUIET, 0 to 1. */
  readonly quiet: number | undefined;
  /** How many minutes were measured. */
  readonly minutes: number;
}

export const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] as const;

interface HourOfWeek {
  day: number;
  hour: number;
}

/** Returns a function that tells the hour of the week in a time zone. Measurements of the same hour ask the calendar once. */
export function hourOfWeek(timeZone: string): (at: number) => HourOfWeek {
  const format = new Intl.DateTimeFormat("en-US", { timeZone, weekday: "short", hour: "2-digit", hourCycle: "h23" });
  const known = new Map<number, HourOfWeek>();
  return (at) => {
    // Every zone's offset is a multiple of a quarter of an hour.
    const quarter = Math.floor(at / 900_000);
    let found = known.get(quarter);
    if (!found) {
      found = { day: 0, hour: 0 };
      for (const part of format.formatToParts(quarter * 900_000)) {
        if (part.type === "weekday") found.day = Math.max(0, DAYS.indexOf(part.value as (typeof DAYS)[number]));
        if (part.type === "hour") found.hour = Number(part.value) % 24;
      }
      known.set(quarter, found);
    }
    return found;
  };
}

/** Sorts measurements into the 168 hours of the week, Monday 00:00 first. */
export function weekHeatmap(samples: Iterable<HourSample>, timeZone: string): HeatCell[] {
  const sums = Array.from({ length: 168 }, () => ({ busy: 0, quiet: 0, minutes: 0 }));
  const place = hourOfWeek(timeZone);
  for (const sample of samples) {
    const { day, hour } = place(sample.at);
    const sum = sums[day * 24 + hour];
    if (!sum || !Number.isFinite(sample.busy) || sample.minutes <= 0) continue;
    sum.busy += sample.busy * sample.minutes;
    sum.minutes += sample.minutes;
    sum.quiet += sample.quiet;
  }
  return sums.map((sum, index) => ({
    day: Math.floor(index / 24),
    hour: index % 24,
    busy: sum.minutes ? sum.busy / sum.minutes : undefined,
    quiet: sum.minutes ? sum.quiet / sum.minutes : undefined,
    minutes: sum.minutes,
  }));
}

/** Returns the shade of a cell: 0 (idle) to 4 (as busy as it gets), by the bounds of the policy's states. */
export function heatLevel(busy: number, bounds: { quiet: number; normal: number; busy: number }): 0 | 1 | 2 | 3 | 4 {
  if (busy <= bounds.quiet / 2) return 0;
  if (busy <= bounds.quiet) return 1;
  if (busy <= bounds.normal) return 2;
  if (busy <= bounds.busy) return 3;
  return 4;
}

/** Returns the longest run of hours that were QUIET at least `part` of the time. The week is a circle. */
export function bestStretch(cells: readonly HeatCell[], part = 0.8): { day: number; hour: number; hours: number } | undefined {
  const quiet = cells.map((cell) => (cell.quiet ?? 0) >= part);
  if (!quiet.includes(true)) return undefined;
  if (!quiet.includes(false)) return { day: 0, hour: 0, hours: cells.length };
  let best = { start: 0, hours: 0 };
  // Starts behind an hour that is not quiet, so that no run is cut at the end of the week.
  const first = quiet.indexOf(false) + 1;
  let start = first;
  let hours = 0;
  for (let i = first; i < first + cells.length; i += 1) {
    if (quiet[i % cells.length]) {
      if (hours === 0) start = i % cells.length;
      hours += 1;
      if (hours > best.hours) best = { start, hours };
    } else hours = 0;
  }
  return { day: Math.floor(best.start / 24), hour: best.start % 24, hours: best.hours };
}
