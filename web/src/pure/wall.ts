// What fails, grouped so that a hundred equal failures are one line on the wall.

interface FailedJob {
  readonly job_id: string;
  readonly addon_id: string;
  readonly job_type: string;
  readonly last_error?: string | null | undefined;
  readonly ended_at?: string | null | undefined;
}

export interface WallGroup {
  readonly key: string;
  readonly addon: string;
  readonly type: string;
  readonly error: string;
  readonly count: number;
  readonly newest: string;
  /** When the newest failed, in milliseconds. */
  readonly at: number;
}

export interface Wall {
  readonly groups: readonly WallGroup[];
  /** Failures in the last hour. */
  readonly lastHour: number;
}

const HOUR = 3_600_000;

/** Returns the kind of an error: its first line, with what differs from run to run left out. */
export function errorKind(error: string | null | undefined): string {
  const line = (error ?? "").split("\n")[0] ?? "";
  return line
    .replace(/[0-9a-f]{8}-[0-9a-f-]{27}/gi, "…")
    .replace(/\b0x[0-9a-f]+\b/gi, "…")
    .replace(/\d+([.,:]\d+)*/g, "#")
    .trim();
}

/** When a job failed that failed in the last hour; else undefined. */
export function failedLately(job: FailedJob, now: number): number | undefined {
  const at = Date.parse(job.ended_at ?? "");
  return now - at <= HOUR ? at : undefined;
}

/** Groups the failures of the last hour; the newest group first. */
export function wallOf(jobs: readonly FailedJob[], now: number): Wall {
  const groups = new Map<string, { -readonly [K in keyof WallGroup]: WallGroup[K] }>();
  let lastHour = 0;
  for (const job of jobs) {
    const at = Date.parse(job.ended_at ?? "");
    if (Number.isNaN(at)) continue;
    if (failedLately(job, now) === undefined) continue;
    lastHour += 1;
    const key = `${job.addon_id}\n${job.job_type}\n${errorKind(job.last_error)}`;
    const known = groups.get(key);
    const error = (job.last_error ?? "").split("\n")[0] ?? "";
    if (!known) groups.set(key, { key, addon: job.addon_id, type: job.job_type, error, count: 1, newest: job.job_id, at });
    else {
      known.count += 1;
      if (at > known.at) Object.assign(known, { at, newest: job.job_id, error });
    }
  }
  return { groups: [...groups.values()].sort((a, b) => b.at - a.at), lastHour };
}
