// Actions on all jobs that a filter finds. The daemon takes down which jobs these are before anybody agrees, so the number in the
// question is the number that the button acts on.
import { type Schemas, get, post } from "./api";
import { type JobFilter, apiQuery } from "./filter";

export type BulkView = Schemas["BulkView"];

/** Takes down which jobs an action is about. Nothing is changed yet. */
export function prepare(action: BulkView["action"], filter: JobFilter): Promise<BulkView> {
  const { id: _, ...query } = apiQuery(filter);
  const any = { state: [], addon_id: null, job_type: null, tag: null, text: null, quarantined: false, ended_since: null, after: null, limit: null };
  return post("/queue/bulk", { body: { action, query: { ...any, ...query } } });
}

const at = (bulk_id: string) => ({ path: { bulk_id } });
export const start = (id: string): Promise<BulkView> => post("/queue/bulk/{bulk_id}/start", at(id));
export const stop = (id: string): Promise<BulkView> => post("/queue/bulk/{bulk_id}/stop", at(id));
export const read = (id: string, signal: AbortSignal): Promise<BulkView> => get("/queue/bulk/{bulk_id}", { ...at(id), signal });
export const list = (signal: AbortSignal): Promise<Schemas["BulkList"]> => get("/queue/bulk", { signal });

/** What is over of an action: done, skipped and failed. */
export const over = ({ done, skipped, failed }: BulkView): number => done + skipped + failed;

/** Does something to each of some jobs, a few at a time. Returns how often it worked, and the first error. */
export async function each(ids: readonly string[], act: (id: string) => Promise<unknown>, atOnce = 6): Promise<{ done: number; error: unknown }> {
  let next = 0;
  let done = 0;
  let error: unknown;
  const lane = async () => {
    for (let id = ids[next++]; id !== undefined; id = ids[next++]) {
      try {
        await act(id);
        done++;
      } catch (failure) {
        error ??= failure;
      }
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return { done, error };
}
