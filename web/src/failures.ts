// What failed lately: by the time of the end. A job that was submitted days ago counts when it fails now, and however many failed
// after it was submitted.
import { type Schemas, get } from "./api";
import { type JobFilter, apiQuery, cliFilter } from "./filter";
import { failedLately } from "./pure/wall";

type JobView = Schemas["JobView"];

/** The filter that finds them. */
export const FAILED_LATELY: JobFilter = { state: ["FAILED"], ended: "1h" };
/** The same, as the list of jobs has it in its address. */
export const FAILED_LATELY_TEXT = cliFilter(FAILED_LATELY).join(" ");
/** More than so many are not counted: the number says so with a "+". */
const COUNTED = 500;

export interface Failures {
  /** Those of the last hour. */
  lately: JobView[];
  /** There are more of them. */
  more: boolean;
  /** The jobs that were submitted last of those that failed at any time. */
  any: JobView[];
}

export async function loadFailed(signal: AbortSignal): Promise<Failures> {
  const [lately, any] = await Promise.all([
    get("/queue/jobs/recent", { query: { ...apiQuery(FAILED_LATELY), limit: COUNTED }, signal }),
    get("/queue/jobs/recent", { query: { state: ["FAILED"], limit: 50 }, signal }),
  ]);
  return { lately: lately.jobs, more: Boolean(lately.next), any: any.jobs };
}

/** How many failed in the last hour, as a number to show: time goes on while nothing new is read. */
export function countLately({ lately, more }: Failures, now: number): { number: number; more: boolean } {
  return { number: lately.filter((job) => failedLately(job, now) !== undefined).length, more };
}

/** The failures that are known, the newest first by their end. */
export function newestFailures(failures: Failures | undefined): JobView[] {
  const all = new Map([...(failures?.any ?? []), ...(failures?.lately ?? [])].map((job) => [job.job_id, job]));
  return [...all.values()].sort((a, b) => Date.parse(b.ended_at ?? "") - Date.parse(a.ended_at ?? ""));
}

/** When a job failed last, as far as it is known, in milliseconds. */
export function lastFailure(failures: Failures | undefined): number | undefined {
  const [newest] = newestFailures(failures);
  return newest ? Date.parse(newest.ended_at ?? "") : undefined;
}
