// The list of jobs of a filter as a screen needs it: reads the first page and those that are scrolled to, follows the events, and
// learns why the jobs that are seen wait.
import { useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type Schemas, get, post } from "./api";
import type { JobFilter } from "./filter";
import { apiQuery } from "./filter";
import { JobPages, type JobRow } from "./jobPages";
import { held, useLive } from "./live";
import { session } from "./session";

const PAGE = 200;
/** Rows before the end of what is loaded at which the next page is read. */
const AHEAD = 100;
/** Time between two readings of the first page, and of the reasons. By feel: as often as anybody reads. */
const HEAD_MS = 1500;
/** Pages of new jobs that are read above a list that is scrolled down. Picked by feel. */
const HEAD_PAGES = 4;
const REASONS_MS = 4000;

export interface Jobs {
  pages: JobPages;
  loading: boolean;
  error: ApiError | undefined;
  reasons: ReadonlyMap<string, Schemas["Reason"]>;
  onRange: (from: number, to: number) => void;
  /** Whether new jobs are put on top at once: the list is looked at from its top. */
  atTop: (is: boolean) => void;
  showAbove: () => void;
  refresh: () => void;
}

export function useJobs(filter: JobFilter): Jobs {
  const key = JSON.stringify(filter);
  const store = useRef(new JobPages());
  const [, setVersion] = useState(0);
  const [loading, setLoading] = useState(true);
  const [error, setError] = useState<ApiError>();
  const [reasons, setReasons] = useState<ReadonlyMap<string, Schemas["Reason"]>>(new Map());
  const work = useRef({ abort: new AbortController(), head: false, headAgain: false, headAt: 0, older: false, top: true, range: [0, 0] as [number, number], reasonsAt: 0, reasonsFor: "", timers: new Set<ReturnType<typeof setTimeout>>() });

  const changed = () => setVersion((version) => version + 1);
  const fetchPage = (before: string | null, limit: number, signal: AbortSignal) =>
    // Written out: the compiler checks the names of parameters that stand here, and not those of a spread.
    get("/queue/jobs/recent", { query: before === null ? { ...apiQuery(filter), limit } : { ...apiQuery(filter), limit, before }, signal });
  const failed = (error: unknown) => {
    if (error instanceof DOMException && error.name === "AbortError") return;
    setError(error instanceof ApiError ? error : new ApiError(0, "no_json", String(error)));
    setLoading(false);
  };
  const later = (run: () => void, wait: number) => {
    const timer = setTimeout(() => {
      work.current.timers.delete(timer);
      run();
    }, wait);
    work.current.timers.add(timer);
  };

  const begin = () => {
    const job = work.current;
    const { signal } = job.abort;
    job.headAt = Date.now();
    fetchPage(null, PAGE, signal).then((page) => {
      store.current.begin(page);
      setError(undefined);
      setLoading(false);
      changed();
    }, failed);
  };

  const readHead = () => {
    const job = work.current;
    if (job.head) {
      job.headAgain = true;
      return;
    }
    job.head = true;
    const { signal } = job.abort;
    job.headAt = Date.now();
    const read = async (): Promise<void> => {
      let page = await fetchPage(null, 100, signal);
      // More new jobs than a page has. At the top the list begins anew; further down the rows stay where they are, and the new
      // jobs are read until they meet these rows.
      for (let more = 0; !store.current.refresh(page); more++) {
        if (job.top || !page.next || more === HEAD_PAGES) {
          if (job.top) begin();
          break;
        }
        const older = await fetchPage(page.next, 500, signal);
        page = { ...older, jobs: [...page.jobs, ...older.jobs] };
      }
      setError(undefined);
      if (job.top) store.current.showAbove();
      changed();
    };
    read()
      .catch(failed)
      .finally(() => {
        job.head = false;
        if (job.headAgain && !signal.aborted) {
          job.headAgain = false;
          headSoon();
        }
      });
  };
  const waiting = useRef(false);
  // What was to be read when the user paused live updates.
  const missed = useRef(false);
  const headSoon = () => {
    if (waiting.current) return;
    waiting.current = true;
    later(() => {
      waiting.current = false;
      if (held.peek()) missed.current = true;
      else readHead();
    }, Math.max(50, work.current.headAt + HEAD_MS - Date.now()));
  };
  useSignalEffect(() => {
    if (held.value || !missed.current) return;
    missed.current = false;
    headSoon();
  });

  const readOlder = () => {
    const job = work.current;
    const after = store.current.next;
    if (job.older || after === null) return;
    job.older = true;
    const { signal } = job.abort;
    fetchPage(after, PAGE, signal)
      .then((page) => {
        store.current.append(page, after);
        changed();
      }, failed)
      .finally(() => {
        job.older = false;
        if (!signal.aborted && job.range[1] > store.current.rows.length - AHEAD) readOlder();
      });
  };

  const readReasons = () => {
    const job = work.current;
    const [from, to] = job.range;
    const jobs = store.current.rows.slice(from, to).filter((row) => row.state === "QUEUED").map((row) => row.job_id);
    const asked = jobs.join();
    if (!jobs.length || (job.reasonsFor === asked && Date.now() - job.reasonsAt < REASONS_MS)) return;
    job.reasonsFor = asked;
    job.reasonsAt = Date.now();
    post("/queue/jobs/reasons", { body: { jobs }, signal: job.abort.signal }).then(
      (found) => setReasons(new Map(found.jobs.map(({ job_id, reason }) => [job_id, reason]))),
      // The list is worth having without.
      () => {},
    );
  };

  useEffect(() => {
    const job = work.current;
    job.abort = new AbortController();
    job.head = job.headAgain = job.older = false;
    waiting.current = false;
    store.current = new JobPages();
    setLoading(true);
    setReasons(new Map());
    begin();
    const timer = setInterval(() => {
      if (!document.hidden) readReasons();
    }, REASONS_MS);
    return () => {
      job.abort.abort();
      clearInterval(timer);
      for (const one of job.timers) clearTimeout(one);
      job.timers.clear();
    };
  }, [key]);

  useLive({}, (batch) => {
    let touched = batch.missed;
    let unknown = batch.missed;
    for (const event of batch.events) {
      if (!event.job_id) continue;
      if (store.current.apply(event)) touched = true;
      else if (event.event === "SUBMITTED" || event.state) unknown = true;
    }
    if (touched) changed();
    if (unknown || (touched && work.current.top)) headSoon();
  });

  const onRange = useCallback((from: number, to: number) => {
    const job = work.current;
    job.range = [from, to];
    if (to > store.current.rows.length - AHEAD) latest.current.readOlder();
    clearTimeout(settled.current);
    settled.current = setTimeout(() => latest.current.readReasons(), 150);
  }, []);
  const settled = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const latest = useRef({ readOlder, readReasons });
  latest.current = { readOlder, readReasons };

  return {
    pages: store.current,
    loading,
    error,
    reasons,
    onRange,
    atTop: (is) => {
      if (work.current.top === is) return;
      work.current.top = is;
      if (is && store.current.above.length) {
        store.current.showAbove();
        changed();
      }
    },
    showAbove: () => {
      store.current.showAbove();
      changed();
    },
    refresh: () => {
      setError(undefined);
      begin();
    },
  };
}

/** Addons, types and tags for completion, from what is loaded. */
export function knownNames(rows: readonly JobRow[], status: Schemas["StatusView"] | undefined): { addons: string[]; types: string[]; tags: string[] } {
  const addons = new Set(Object.keys(status?.addons ?? {}));
  const types = new Set<string>();
  const tags = new Set<string>();
  const own = session.peek()?.addon_id;
  if (own) addons.add(own);
  for (const row of rows.slice(0, 2000)) {
    addons.add(row.addon_id);
    types.add(row.job_type);
    for (const tag of row.tags ?? []) tags.add(tag);
  }
  return { addons: [...addons].sort(), types: [...types].sort(), tags: [...tags].sort() };
}
