// All events of a job: the pages that there are, and then what follows the last one whenever the stream says that something did.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Schemas, get } from "./api";
import { useLive } from "./live";

type EventEntry = Schemas["EventEntry"];
const PAGE = 500;
/** More are left out at first: a job that is tried every second has very many. */
const MOST = 2000;

export interface JobEvents {
  events: readonly EventEntry[];
  /** There are more than are shown. */
  more: boolean;
  readMore: () => void;
}

export function useJobEvents(id: string): JobEvents {
  const [state, setState] = useState<{ events: readonly EventEntry[]; more: boolean }>({ events: [], more: false });
  const work = useRef({ last: 0, most: MOST, busy: false, again: false, abort: new AbortController() });

  const read = async () => {
    const job = work.current;
    if (job.busy) {
      job.again = true;
      return;
    }
    job.busy = true;
    const { signal } = job.abort;
    try {
      do {
        job.again = false;
        const page = await get("/queue/jobs/{job_id}/events", { path: { job_id: id }, query: { after: job.last, limit: PAGE }, signal });
        signal.throwIfAborted();
        const last = page.events.at(-1)?.cursor;
        if (last !== undefined) job.last = last;
        const more = page.next !== undefined && page.next !== null;
        setState((old) => ({ events: page.events.length ? [...old.events, ...page.events] : old.events, more }));
        job.most -= page.events.length;
        if (more && job.most > 0) job.again = true;
      } while (job.again);
    } catch {
      // The page of the job tells that the daemon does not answer; the next event reads again.
    } finally {
      if (!signal.aborted) job.busy = false;
    }
  };

  useEffect(() => {
    const abort = new AbortController();
    work.current = { last: 0, most: MOST, busy: false, again: false, abort };
    setState({ events: [], more: false });
    read();
    return () => abort.abort();
  }, [id]);
  useLive({ job_id: id }, (batch) => {
    if (batch.missed || batch.events.some((event) => event.cursor !== null)) read();
  });
  return {
    ...state,
    readMore: () => {
      work.current.most = MOST;
      read();
    },
  };
}
