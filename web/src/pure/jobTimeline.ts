// A job's history as bars: in which state it was when, and under which leases it ran. Made of its events alone.
import type { Schemas } from "../api";
import { instant } from "../time";

type EventEntry = Schemas["EventEntry"];
type JobState = Schemas["JobState"];

export interface Bar {
  from: number;
  /** Absent while it lasts. */
  to: number | undefined;
  label: string;
  state: JobState;
  /** Why it ended, if that is known. */
  note?: string | undefined;
}

export interface Mark {
  at: number;
  event: EventEntry["event"];
  label: string;
}

export interface JobTimeline {
  from: number;
  /** The end of the last bar; absent while something lasts. */
  to: number | undefined;
  states: Bar[];
  attempts: Bar[];
  leases: Bar[];
  marks: Mark[];
}

const FINAL = new Set<JobState>(["DONE", "FAILED", "CANCELED"]);
/** Events that are worth a mark of their own, beside the changes of the state. */
const MARKED: Partial<Record<EventEntry["event"], string>> = {
  DENIED: "denied", CANCEL_REQUESTED: "asked to stop", DEADLINE_AT_RISK: "deadline at risk", QUARANTINED: "quarantined", PAUSED: "paused", RESUMED: "resumed",
  HASTENED: "hastened", EDITED: "edited", DEPENDENCY_ENDED: "dependency ended", REDRIVEN: "queued again", LEASE_EXPIRED: "lease expired", LEASE_REVOKED: "lease revoked", TIMEOUT: "timeout",
};

/** Builds the timeline. Events are in their order. */
export function timelineOf(events: readonly EventEntry[]): JobTimeline | null {
  const first = events[0];
  const from = instant(first?.at);
  if (!first || from === null) return null;
  const out: JobTimeline = { from, to: undefined, states: [], attempts: [], leases: [], marks: [] };
  const leases = new Map<string, Bar>();
  let run: Bar | undefined;
  let last = from;
  for (const event of events) {
    const at = instant(event.at) ?? last;
    last = at;
    const mark = MARKED[event.event];
    if (mark) out.marks.push({ at, event: event.event, label: event.reason ? `${mark}: ${event.reason}` : mark });
    const before = out.states.at(-1);
    if (event.state && event.state !== before?.state) {
      if (before && before.to === undefined) before.to = at;
      if (!FINAL.has(event.state)) out.states.push({ from: at, to: undefined, label: event.state.toLowerCase(), state: event.state });
      else out.states.push({ from: at, to: at, label: event.state.toLowerCase(), state: event.state, note: event.reason ?? undefined });
    }
    // A run begins with RUNNING; the next change of the state ends it.
    if (event.event === "RUNNING") {
      if (run && run.to === undefined) run.to = at;
      run = { from: at, to: undefined, label: `attempt ${event.attempt ?? out.attempts.length + 1}`, state: "RUNNING" };
      out.attempts.push(run);
    } else if (run && run.to === undefined && event.state && event.state !== "RUNNING") {
      run.to = at;
      run.note = event.reason ?? undefined;
      run.state = event.state === "DONE" ? "DONE" : event.state === "CANCELED" ? "CANCELED" : event.event === "RETURNED" ? "QUEUED" : "FAILED";
    }
    if (event.lease_id) {
      let lease = leases.get(event.lease_id);
      if (!lease) {
        lease = { from: at, to: undefined, label: `lease ${event.lease_id.slice(-8)}${event.node_id ? ` on ${event.node_id}` : ""}`, state: "DISPATCHING" };
        leases.set(event.lease_id, lease);
        out.leases.push(lease);
      }
      if (event.event.startsWith("LEASE_") && event.event !== "LEASE_GRANTED") {
        lease.to = at;
        lease.note = event.event.slice(6).toLowerCase();
        if (event.event === "LEASE_EXPIRED") lease.state = "FAILED";
      } else if (event.state && event.state !== "RUNNING" && event.state !== "DISPATCHING") lease.to = at;
    }
  }
  if (out.states.at(-1)?.to !== undefined) {
    out.to = last;
    for (const bar of [...out.attempts, ...out.leases]) bar.to ??= last;
  }
  return out;
}

/** Times for a scale: at most `most` round steps between two times. */
export function ticks(from: number, to: number, most: number): number[] {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500].concat([1, 2, 5, 10, 15, 30].map((s) => s * 1000), [1, 2, 5, 10, 15, 30].map((m) => m * 60_000), [1, 2, 3, 6, 12].map((h) => h * 3_600_000), [1, 2, 7, 14, 30, 90, 365].map((d) => d * 86_400_000));
  const step = steps.find((one) => (to - from) / one <= most) ?? 365 * 86_400_000;
  const out: number[] = [];
  for (let at = 0; at <= to - from; at += step) out.push(at);
  return out;
}
