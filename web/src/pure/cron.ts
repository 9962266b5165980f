// The next firings of a schedule, by the rules of the daemon (crates/queue/src/cron), which tells the first of them itself.
//
// Five fields, or six with seconds first; lists, ranges, steps, names; when both days are restricted, either suffices. Fields
// are read on the clock of the schedule's time zone. Where that clock is changed: with a restricted hour, a time that is
// skipped fires at the change, once, and a time that comes twice fires the first time only; with the hour `*`, skipped times
// do not fire and doubled ones fire twice.

interface Cron {
  readonly seconds: readonly number[];
  readonly minutes: readonly number[];
  readonly hours: readonly number[];
  readonly days: ReadonlySet<number>;
  readonly months: ReadonlySet<number>;
  readonly weekdays: ReadonlySet<number>;
  readonly anyDay: boolean;
  readonly anyWeekday: boolean;
  readonly anyHour: boolean;
}

const ALIASES: Record<string, string> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
};
const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const DAY = 86_400_000;
/** Days that are looked through: two leap years apart. */
const AHEAD = 8 * 366 + 2;

const any = (field: string): boolean => field === "*" || field === "?";

function values(field: string, least: number, most: number, names: readonly string[] = [], first = 0): number[] | undefined {
  const found = new Set<number>();
  for (const part of field.split(",")) {
    const [range = "", stepText, ...rest] = part.split("/");
    const step = stepText === undefined ? 1 : /^\d+$/.test(stepText) ? Number(stepText) : 0;
    if (step < 1 || rest.length > 0) return undefined;
    const value = (text: string): number => {
      const name = names.indexOf(text.toLowerCase());
      if (name >= 0) return name + first;
      return /^\d+$/.test(text) ? Number(text) : Number.NaN;
    };
    let from = least;
    let to = most;
    if (!any(range)) {
      const ends = range.split("-");
      if (ends.length > 2) return undefined;
      from = value(ends[0] ?? "");
      to = ends.length === 2 ? value(ends[1] ?? "") : stepText === undefined ? from : most;
    }
    if (!(from >= least && to <= most && from <= to)) return undefined;
    for (let one = from; one <= to; one += step) found.add(one);
  }
  return [...found].sort((a, b) => a - b);
}

/** Reads an expression; undefined if it makes no sense here. What is valid, the daemon decides. */
export function parseCron(text: string): Cron | undefined {
  const fields = (ALIASES[text.trim().toLowerCase()] ?? text.trim()).split(/\s+/);
  if (fields.length === 5) fields.unshift("0");
  if (fields.length !== 6) return undefined;
  const [second = "", minute = "", hour = "", day = "", month = "", weekday = ""] = fields;
  const seconds = values(second, 0, 59);
  const minutes = values(minute, 0, 59);
  const hours = values(hour, 0, 23);
  const days = values(day, 1, 31);
  const months = values(month, 1, 12, MONTHS, 1);
  const weekdays = values(weekday, 0, 7, WEEKDAYS);
  if (!seconds || !minutes || !hours || !days || !months || !weekdays) return undefined;
  return {
    seconds,
    minutes,
    hours,
    days: new Set(days),
    months: new Set(months),
    weekdays: new Set(weekdays.map((one) => one % 7)),
    anyDay: any(day),
    anyWeekday: any(weekday),
    anyHour: any(hour),
  };
}

/** Returns a function from a time to what the clock on the wall of a zone shows, written as if it were UTC. */
function wallClock(zone: string): (at: number) => number {
  const format = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" });
  return (at) => {
    const part: Record<string, number> = {};
    for (const { type, value } of format.formatToParts(at)) part[type] = Number(value);
    return Date.UTC(part.year ?? 0, (part.month ?? 1) - 1, part.day ?? 1, (part.hour ?? 0) % 24, part.minute ?? 0, part.second ?? 0) + (((at % 1000) + 1000) % 1000);
  };
}

/** Returns the times at which the clock shows `wall`: none if it is skipped, two if it comes twice. */
function timesOf(wall: number, clock: (at: number) => number): number[] {
  const offsets = new Set([clock(wall - DAY) - (wall - DAY), clock(wall + DAY) - (wall + DAY)]);
  return [...offsets]
    .map((offset) => wall - offset)
    .filter((at) => clock(at) === wall)
    .sort((a, b) => a - b);
}

/** Returns the moment at which the clock jumps over `wall`. */
function jump(wall: number, clock: (at: number) => number): number {
  const before = clock(wall - DAY) - (wall - DAY);
  let low = wall - before - DAY;
  let high = wall - before + DAY;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (clock(middle) > wall) high = middle;
    else low = middle;
  }
  return high;
}

/** Returns up to `count` firings after a time, in milliseconds; none if the expression or the zone is unknown here. */
export function nextRuns(text: string, zone: string, after: number, count: number): number[] {
  const cron = parseCron(text);
  if (!cron) return [];
  let clock: (at: number) => number;
  try {
    clock = wallClock(zone || "UTC");
  } catch {
    return [];
  }
  const found: number[] = [];
  // A day before: on a day that ends twice the local date can fall back.
  let date = Math.floor(clock(after) / DAY) * DAY - DAY;
  for (let tried = 0; tried < AHEAD && found.length < count; tried += 1, date += DAY) {
    const local = new Date(date);
    const day = cron.days.has(local.getUTCDate());
    const weekday = cron.weekdays.has(local.getUTCDay());
    const fits = cron.anyDay || cron.anyWeekday ? day && weekday : day || weekday;
    if (!fits || !cron.months.has(local.getUTCMonth() + 1)) continue;
    const today = new Set<number>();
    const wanted = count - found.length;
    for (const hour of cron.hours) {
      for (const minute of cron.minutes) {
        for (const second of cron.seconds) {
          const wall = date + ((hour * 60 + minute) * 60 + second) * 1000;
          const times = timesOf(wall, clock);
          if (times.length === 0 && !cron.anyHour) times.push(jump(wall, clock));
          for (const at of cron.anyHour ? times : times.slice(0, 1)) if (at > after) today.add(at);
        }
      }
      // Hours of doubled times may come out of order: one more is enough to sort them in.
      if (today.size > wanted * 2 + 3600) break;
      if (today.size >= wanted && !cron.anyHour) break;
    }
    found.push(...[...today].sort((a, b) => a - b).filter((at) => !found.includes(at)));
  }
  return found.sort((a, b) => a - b).slice(0, count);
}
