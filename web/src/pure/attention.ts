// What a person should look at first: jobs that are stuck, that no worker serves, that are late or about to be late.

export type Trouble = "quarantined" | "overdue" | "stuck" | "unserved" | "late" | "at-risk" | "cancelling";

export interface AttentionJob {
  readonly job_id: string;
  readonly state: string;
  readonly created_at: string;
  readonly started_at?: string | null | undefined;
  readonly deadline_at?: string | null | undefined;
  readonly deadline_at_risk?: boolean | undefined;
  readonly cancel_requested?: boolean | undefined;
  readonly quarantined?: boolean | undefined;
  readonly max_runtime_sec?: number | null | undefined;
  readonly expected_duration_sec?: number | null | undefined;
}

export interface Attention<J> {
  readonly job: J;
  readonly trouble: Trouble;
  /** How bad it is among jobs of the same trouble, in seconds: how late, how long stuck. */
  readonly seconds: number;
}

/** The worst first. */
export const TROUBLES: readonly Trouble[] = ["stuck", "overdue", "late", "unserved", "at-risk", "cancelling", "quarantined"];

/** Codes of `explain` that say that no worker is there. */
const NO_WORKER = new Set(["no_worker", "unserved", "wrong_node"]);
/** A job that runs this many times as long as expected, and at least this long, is stuck. */
const STUCK_FACTOR = 5;
const STUCK_LEAST_SEC = 600;
/** A cancelled job ends within seconds; one that does not deserves a look. */
const CANCELLING_SEC = 10;

function secondsSince(time: string | null | undefined, now: number): number | undefined {
  if (!time) return undefined;
  const at = Date.parse(time);
  return Number.isNaN(at) ? undefined : (now - at) / 1000;
}

/**
 * Returns what is wrong with a job, if something is.
 *
 * `reason` is the code of the first reason why it waits. A job that waits for workers is in trouble only after `grace` seconds:
 * every job waits for a moment.
 */
export function troubleOf<J extends AttentionJob>(job: J, reason: string | undefined, now: number, grace = 15): Attention<J> | undefined {
  const found = (trouble: Trouble, seconds: number): Attention<J> => ({ job, trouble, seconds });
  const ended = job.state === "DONE" || job.state === "FAILED" || job.state === "CANCELED";
  if (ended) return job.quarantined ? found("quarantined", 0) : undefined;
  const ran = job.state === "RUNNING" ? secondsSince(job.started_at, now) : undefined;
  if (ran !== undefined) {
    if (job.max_runtime_sec && ran > job.max_runtime_sec) return found("overdue", ran - job.max_runtime_sec);
    const expected = job.expected_duration_sec;
    if (expected && ran > Math.max(STUCK_LEAST_SEC, expected * STUCK_FACTOR)) return found("stuck", ran);
    if (job.cancel_requested && ran > CANCELLING_SEC) return found("cancelling", ran);
  }
  const late = secondsSince(job.deadline_at, now);
  if (late !== undefined && late > 0) return found("late", late);
  const waited = secondsSince(job.created_at, now) ?? 0;
  if (reason && NO_WORKER.has(reason) && waited > grace) return found("unserved", waited);
  if (job.deadline_at_risk) return found("at-risk", late ?? 0);
  return undefined;
}

/** Returns the jobs in trouble, the worst first; of equal trouble, the longest first. */
export function needAttention<J extends AttentionJob>(
  jobs: readonly J[],
  reasons: ReadonlyMap<string, string>,
  now: number,
): Attention<J>[] {
  return jobs
    .flatMap((job) => troubleOf(job, reasons.get(job.job_id), now) ?? [])
    .sort(
      (a, b) =>
        TROUBLES.indexOf(a.trouble) - TROUBLES.indexOf(b.trouble) ||
        b.seconds - a.seconds ||
        (a.job.job_id < b.job.job_id ? -1 : a.job.job_id > b.job.job_id ? 1 : 0),
    );
}

/** Says what is wrong, for a badge. */
export function troubleText(trouble: Trouble): string {
  switch (trouble) {
    case "stuck":
      return "stuck: runs far longer than expected";
    case "overdue":
      return "over its time limit";
    case "late":
      return "late: the deadline has passed";
    case "unserved":
      return "no worker serves it";
    case "at-risk":
      return "deadline at risk";
    case "cancelling":
      return "cancelled, but still running";
    case "quarantined":
      return "quarantined: it brought its workers down";
  }
}
