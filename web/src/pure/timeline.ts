// Places running jobs on the live timeline: a group of lanes for each addon, a bar for each job, as long as the job has run.
//
// Everything is computed in milliseconds and pixels, without the DOM, so that tests can check each coordinate.

/** A job as the timeline needs it. Times are milliseconds since 1970. */
export interface TimelineJob {
  readonly id: string;
  readonly addon: string;
  readonly label: string;
  readonly state: string;
  readonly startedAt: number;
  /** The end of a job that has ended; a running job has none. */
  readonly endedAt?: number | undefined;
  /** The part that is done, 0 to 1, if the job reports it. */
  readonly fraction?: number | undefined;
}

export interface TimelineBar {
  readonly job: TimelineJob;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  /** The width of the part that is done; undefined if the job does not report it. */
  readonly done: number | undefined;
  /** The job started before the window. */
  readonly clipped: boolean;
  /** What is free left of it, up to the bar before it in its lane. */
  readonly room: number;
}

export interface TimelineGroup {
  readonly addon: string;
  readonly y: number;
  readonly height: number;
  readonly jobs: number;
  /** Jobs for which there is no lane. */
  readonly hidden: number;
}

export interface TimelineTick {
  readonly x: number;
  /** Milliseconds before now. */
  readonly ago: number;
}

export interface Timeline {
  readonly groups: readonly TimelineGroup[];
  readonly bars: readonly TimelineBar[];
  readonly ticks: readonly TimelineTick[];
  readonly height: number;
  readonly from: number;
  readonly to: number;
}

export interface TimelineOptions {
  readonly now: number;
  readonly width: number;
  readonly lane?: number;
  readonly gap?: number;
  /** The height of an addon's name above its lanes. */
  readonly header?: number;
  /** Lanes that an addon gets at most; further jobs are counted. */
  readonly maxLanes?: number;
  /** The shortest window, so that a job that just began does not fill the whole width. */
  readonly minSpan?: number;
  /** The longest window; older jobs are clipped. */
  readonly maxSpan?: number;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
/** A bar stays visible and can be clicked, however short its job. */
const LEAST_WIDTH = 4;

/** Returns the time between two ticks, in milliseconds, so that there are at most `most` of them. */
export function tickStep(span: number, most: number): number {
  const wanted = span / Math.max(1, most) / 1000;
  const seconds = STEPS.find((step) => step >= wanted) ?? Math.ceil(wanted / 86400) * 86400;
  return seconds * 1000;
}

/** Lays out the timeline. */
export function layoutTimeline(jobs: readonly TimelineJob[], options: TimelineOptions): Timeline {
  const { now, width, lane = 22, gap = 4, header = 20, maxLanes = 8, minSpan = 30_000, maxSpan = 6 * 3_600_000 } = options;
  // What has ended does not lengthen the window: it is what happened meanwhile.
  const oldest = jobs.reduce((least, job) => (job.endedAt === undefined ? Math.min(least, job.startedAt) : least), now);
  // A little room on the left: a bar that begins at the very edge looks clipped.
  const span = Math.min(maxSpan, Math.max(minSpan, (now - oldest) * 1.04));
  const from = now - span;
  const scale = width / span;

  const byAddon = new Map<string, TimelineJob[]>();
  for (const job of jobs) {
    if (job.endedAt !== undefined && job.endedAt < from) continue;
    const list = byAddon.get(job.addon);
    if (list) list.push(job);
    else byAddon.set(job.addon, [job]);
  }
  const groups: TimelineGroup[] = [];
  const bars: TimelineBar[] = [];
  let y = 0;
  for (const addon of [...byAddon.keys()].sort()) {
    const members = (byAddon.get(addon) ?? []).slice().sort((a, b) => a.startedAt - b.startedAt || (a.id < b.id ? -1 : 1));
    // The right end of the last bar of each lane.
    const ends: number[] = [];
    let hidden = 0;
    for (const job of members) {
      const end = Math.min(job.endedAt ?? now, now);
      const x = Math.max(0, (job.startedAt - from) * scale);
      const right = Math.max(x + LEAST_WIDTH, (end - from) * scale);
      let index = ends.findIndex((before) => before + 2 <= x);
      if (index < 0) {
        if (ends.length >= maxLanes) {
          hidden += 1;
          continue;
        }
        index = ends.length;
      }
      const room = Math.max(0, x - (ends[index] ?? 0));
      ends[index] = right;
      const barWidth = Math.min(right, width) - Math.min(x, width - LEAST_WIDTH);
      const fraction = job.fraction;
      bars.push({
        job,
        x: Math.min(x, width - LEAST_WIDTH),
        y: y + header + index * (lane + gap),
        width: Math.max(LEAST_WIDTH, barWidth),
        height: lane,
        done: fraction === undefined ? undefined : Math.max(LEAST_WIDTH, barWidth) * Math.min(1, Math.max(0, fraction)),
        clipped: job.startedAt < from,
        room,
      });
    }
    const height = header + ends.length * (lane + gap);
    groups.push({ addon, y, height, jobs: members.length, hidden });
    y += height + gap;
  }

  const ticks: TimelineTick[] = [];
  const step = tickStep(span, Math.max(2, Math.floor(width / 110)));
  for (let ago = 0; ago < span; ago += step) ticks.push({ x: width - ago * scale, ago });
  return { groups, bars, ticks, height: Math.max(0, y - gap), from, to: now };
}

/** What names a job best: its summary, else its progress message, else its type with the first tag. */
export function jobLabel(job: {
  readonly job_type: string;
  readonly summary?: string | null | undefined;
  readonly tags?: readonly string[] | undefined;
}): string {
  if (job.summary) return job.summary;
  const tag = job.tags?.[0];
  return tag ? `${job.job_type} · ${tag}` : job.job_type;
}
