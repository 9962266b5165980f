// The daemon's event stream. One connection serves all parts of a screen that want the same events.
//
// The promise to a subscriber: it learns of every event that was kept, or that it missed some (`missed`), after which it reads
// the state anew. Each kept event has a place in the log; after a broken connection the stream goes on behind the last place
// seen. A page that nobody looks at closes its stream, and a subscriber is called a few times a second at most, with
// everything that came since: a hundred thousand events a minute must leave the page responsive.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Schemas, address } from "./api";
import { checkSession } from "./session";

export type EventKind = Schemas["EventKind"];
export type LiveEvent = Schemas["Event"] & { cursor: number | null };

/** What happened since the last call. */
export interface Batch {
  events: LiveEvent[];
  /** More happened than is listed: read the state anew. */
  missed: boolean;
  /** The time from which nothing was missed: what was read after it needs not be read again. */
  since: number;
}

/** Which events; all that is given must hold. */
export interface Filter {
  job_id?: string;
  addon_id?: string;
  job_type?: string;
  event?: EventKind[];
}

/** A record, so that a kind that is added to the API is missed by the compiler. */
const KINDS: Record<EventKind, true> = {
  SUBMITTED: true, ADMITTED: true, DENIED: true, DISPATCHING: true, RUNNING: true, DONE: true, FAILED: true, CANCELED: true,
  TIMEOUT: true, RETRY_SCHEDULED: true, QUARANTINED: true, DEADLINE_AT_RISK: true, LEASE_GRANTED: true, LEASE_EXPIRED: true,
  LEASE_RELEASED: true, LEASE_REVOKED: true, CANCEL_REQUESTED: true, RETURNED: true, PROGRESS: true, REDRIVEN: true,
  HASTENED: true, DEPENDENCY_ENDED: true, PAUSED: true, RESUMED: true, LOG: true, LOAD_STATE: true, EDITED: true,
};

/** Subscribers are called this often at most. */
const FLUSH_MS = 250;
/** More events than this between two calls are not listed. By feel: what a screen can make use of. */
const LISTED = 500;
/** A page that is hidden for a moment keeps its stream. */
const HIDDEN_MS = 5_000;
/** After a longer absence reading the state anew is cheaper than all events since. */
const AWAY_MS = 60_000;
const BACKOFF_MS = [250, 1000, 2000, 4000, 8000, 15_000];

export type LiveState = "off" | "connecting" | "live" | "paused" | "lost";
/** The state of the stream, for the sign in the corner. */
export const liveState = signal<LiveState>("off");
/** True if the user has switched live updates off. */
export const held = signal(false);

type Handler = (batch: Batch) => void;

class Stream {
  private readonly handlers = new Set<Handler>();
  private source: EventSource | null = null;
  private last: string | null = null;
  private waiting: { kind: string; id: string; data: string }[] = [];
  private dropped = false;
  private since = 0;
  private failures = 0;
  private pausedAt: number | null = null;
  private flushTimer: ReturnType<typeof setTimeout> | null = null;
  private retryTimer: ReturnType<typeof setTimeout> | null = null;

  constructor(private readonly filter: Filter) {}

  add(handler: Handler): void {
    this.handlers.add(handler);
    if (this.handlers.size === 1 && wanted()) this.connect();
  }

  /** Returns true if nobody is left. */
  delete(handler: Handler): boolean {
    this.handlers.delete(handler);
    if (!this.handlers.size) this.close();
    return !this.handlers.size;
  }

  pause(): void {
    if (this.pausedAt !== null) return;
    this.pausedAt = Date.now();
    this.close();
  }

  resume(): void {
    if (this.pausedAt !== null && Date.now() - this.pausedAt > AWAY_MS) this.last = null;
    this.pausedAt = null;
    this.failures = 0;
    if (!this.source) this.connect();
  }

  get open(): boolean {
    return this.source?.readyState === 1;
  }

  private connect(): void {
    this.close();
    // A place that is not known yet is no gap for a page that has read nothing; everybody else is told below.
    const resumed = this.last;
    const source = new EventSource(address("/events", {}, { ...this.filter, after: resumed }));
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      if (resumed === null) {
        this.dropped = true;
        this.since = Date.now();
        this.flushSoon();
      }
      tellState();
    };
    source.onerror = () => {
      // The browser's own reconnecting has no backoff worth the name.
      this.close();
      const wait = BACKOFF_MS[Math.min(this.failures, BACKOFF_MS.length - 1)] ?? 15_000;
      this.failures++;
      this.retryTimer = setTimeout(() => this.connect(), wait * (0.75 + Math.random() / 2));
      tellState();
      // An EventSource does not tell why; the session may have ended.
      checkSession();
    };
    const receive = (event: MessageEvent<string>) => {
      if (event.lastEventId) this.last = event.lastEventId;
      if (this.waiting.length < LISTED) this.waiting.push({ kind: event.type, id: event.lastEventId, data: event.data });
      else this.dropped = true;
      this.flushSoon();
    };
    for (const kind of Object.keys(KINDS)) source.addEventListener(kind, receive as (event: Event) => void);
    tellState();
  }

  private close(): void {
    this.source?.close();
    this.source = null;
    if (this.retryTimer) clearTimeout(this.retryTimer);
    this.retryTimer = null;
    tellState();
  }

  private flushSoon(): void {
    this.flushTimer ??= setTimeout(() => {
      this.flushTimer = null;
      const { waiting, dropped, since } = this;
      this.waiting = [];
      this.dropped = false;
      // What is dropped from now on is news to everybody.
      this.since = Number.POSITIVE_INFINITY;
      const events: LiveEvent[] = [];
      let lost = false;
      for (const { kind, id, data } of waiting) {
        try {
          events.push({ ...(JSON.parse(data) as Schemas["Event"]), event: kind as EventKind, cursor: id ? Number(id) : null });
        } catch {
          lost = true;
        }
      }
      const batch: Batch = { events, missed: dropped || lost, since: dropped && waiting.length < LISTED ? since : Number.POSITIVE_INFINITY };
      for (const handler of [...this.handlers]) handler(batch);
    }, FLUSH_MS);
  }
}

const streams = new Map<string, Stream>();

const wanted = (): boolean => !held.peek() && !(typeof document !== "undefined" && document.hidden);

function tellState(): void {
  const all = [...streams.values()];
  liveState.value = !all.length ? "off" : !wanted() ? "paused" : all.every((stream) => stream.open) ? "live" : liveState.peek() === "live" || liveState.peek() === "lost" ? "lost" : "connecting";
}

/** Calls the handler with what happens from now on, until the returned function is called. */
export function subscribe(filter: Filter, handler: Handler): () => void {
  const key = JSON.stringify(filter);
  let stream = streams.get(key);
  if (!stream) {
    stream = new Stream(filter);
    streams.set(key, stream);
  }
  const found = stream;
  found.add(handler);
  tellState();
  return () => {
    if (found.delete(handler)) streams.delete(key);
    tellState();
  };
}

/** Stops live updates, or goes on with them. */
export function hold(on: boolean): void {
  held.value = on;
  settle();
}

function settle(): void {
  for (const stream of streams.values()) {
    if (wanted()) stream.resume();
    else stream.pause();
  }
  tellState();
}

if (typeof document !== "undefined") {
  let timer: ReturnType<typeof setTimeout> | undefined;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(settle, HIDDEN_MS);
    else settle();
  });
}

/** Subscribes a component while it is shown. `null` subscribes to nothing. */
export function useLive(filter: Filter | null, handler: Handler): void {
  const latest = useRef(handler);
  latest.current = handler;
  const key = filter && JSON.stringify(filter);
  useEffect(() => (key === null ? undefined : subscribe(JSON.parse(key) as Filter, (batch) => latest.current(batch))), [key]);
}
