// What a screen shows of the daemon's state: read at first, then again when events say that it changed, or every few seconds.
// The old state stays on the screen while the new one is read, and one reading is under way at a time.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";
import { type Batch, type Filter, held, useLive } from "./live";

export interface Resource<T> {
  data: T | undefined;
  error: ApiError | undefined;
  /** Nothing was read yet. */
  loading: boolean;
  refresh: () => void;
}

export interface How {
  /** Reads again this often while the page is seen, in milliseconds. */
  every?: number;
  /** Reads again after such events. */
  live?: Filter | null;
  /** Which events count; all if absent. */
  when?: (event: Batch["events"][number]) => boolean;
  /** Time between two readings at least, in milliseconds. */
  gap?: number;
  /** Keeps the old data on the screen when the key changes. */
  keep?: boolean;
}

/** Reads with `load` whenever `key` changes, and again as `how` says. A key of null reads nothing. */
export function useResource<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>, how: How = {}): Resource<T> {
  const [state, setState] = useState<{ key: string | null; data: T | undefined; error: ApiError | undefined }>({ key, data: undefined, error: undefined });
  const latest = useRef(load);
  latest.current = load;
  const work = useRef<{ abort: AbortController | null; startedAt: number; again: boolean; timer: ReturnType<typeof setTimeout> | null }>({ abort: null, startedAt: 0, again: false, timer: null });
  const gap = how.gap ?? 1000;

  const read = useRef<(key: string) => void>(() => {});
  read.current = (key) => {
    const job = work.current;
    if (job.abort) {
      job.again = true;
      return;
    }
    const abort = new AbortController();
    job.abort = abort;
    job.again = false;
    job.startedAt = Date.now();
    const done = (change: Partial<{ data: T; error: ApiError | undefined }>) => {
      if (abort.signal.aborted) return;
      job.abort = null;
      setState((old) => ({ key, data: old.key === key || how.keep ? old.data : undefined, error: undefined, ...change }));
      if (job.again) soon(key);
    };
    latest.current(abort.signal).then(
      (data) => done({ data, error: undefined }),
      (error: unknown) => {
        if (error instanceof DOMException && error.name === "AbortError") return;
        done({ error: error instanceof ApiError ? error : new ApiError(0, "no_json", String(error)) });
      },
    );
  };
  const soon = (key: string) => {
    const job = work.current;
    if (job.timer) return;
    job.timer = setTimeout(
      () => {
        job.timer = null;
        read.current(key);
      },
      Math.max(0, job.startedAt + gap - Date.now()),
    );
  };

  useEffect(() => {
    if (key === null) return;
    const job = work.current;
    read.current(key);
    const interval = how.every
      ? setInterval(() => {
          if (!document.hidden && !held.peek()) read.current(key);
        }, how.every)
      : undefined;
    return () => {
      clearInterval(interval);
      if (job.timer) clearTimeout(job.timer);
      job.timer = null;
      job.abort?.abort();
      job.abort = null;
    };
  }, [key, how.every]);

  useLive(key === null ? null : (how.live ?? null), (batch) => {
    const news = batch.events.some((event) => how.when?.(event) ?? true);
    const gapBefore = batch.missed && (batch.since === Number.POSITIVE_INFINITY || work.current.startedAt < batch.since);
    if (key !== null && (news || gapBefore)) soon(key);
  });

  const fits = state.key === key || how.keep;
  return {
    data: fits ? state.data : undefined,
    error: state.key === key ? state.error : undefined,
    loading: key !== null && (fits ? state.data : undefined) === undefined && !(state.key === key && state.error),
    refresh: () => {
      if (key !== null) read.current(key);
    },
  };
}
