// What people and programs did beside submitting and running: cancellations, retries, edits, pauses, revoked leases, with the
// reasons they gave. It is read from the event log, from its beginning, by the kinds of events.
import { useEffect, useState } from "preact/hooks";
import { type Schemas, address } from "../api";
import { Age } from "../components/Age";
import { Card } from "../components/Card";
import { jobHref, shortId } from "../links";

type Kind = Schemas["EventKind"];
interface Entry {
  cursor: string;
  kind: Kind;
  event: Schemas["Event"];
}

const WORDS: Partial<Record<Kind, string>> = {
  CANCEL_REQUESTED: "cancelled",
  REDRIVEN: "queued again",
  HASTENED: "tried again at once",
  EDITED: "edited",
  PAUSED: "paused",
  RESUMED: "resumed",
  LEASE_REVOKED: "lease revoked",
  QUARANTINED: "quarantined",
};
const KINDS = Object.keys(WORDS) as Kind[];
/** The newest entries that are shown. */
const KEPT = 100;

export function AuditTrail() {
  const [entries, setEntries] = useState<readonly Entry[]>([]);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const source = new EventSource(address("/events", {}, { event: KINDS, after: 0 }));
    let buffer: Entry[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      const news = buffer;
      buffer = [];
      setEntries((old) => [...news.reverse(), ...old].slice(0, KEPT));
    };
    const receive = (message: Event) => {
      const { data, lastEventId, type } = message as MessageEvent<string>;
      try {
        buffer.push({ cursor: lastEventId, kind: type as Kind, event: JSON.parse(data) as Schemas["Event"] });
      } catch {
        return;
      }
      // Only the newest count: a long log is read without being kept.
      if (buffer.length > KEPT * 4) buffer = buffer.slice(-KEPT);
      timer ??= setTimeout(flush, 200);
    };
    for (const kind of KINDS) source.addEventListener(kind, receive);
    source.onopen = () => setOpen(true);
    return () => {
      source.close();
      clearTimeout(timer);
    };
  }, []);
  return (
    <Card title="What was done" flush beside={<span class="muted">the newest {KEPT}, from the event log</span>}>
      {entries.length === 0 ? (
        <p class="card-body muted">{open ? "Nobody cancelled, retried, edited, paused or revoked anything as far as the event log goes back." : "Reading the event log…"}</p>
      ) : (
        <ul class="rows audit">
          {entries.map(({ cursor, kind, event }) => (
            <li key={cursor}>
              <span class="badge">{WORDS[kind] ?? kind.toLowerCase()}</span>
              {event.job_id ? <a href={jobHref(event.job_id)}>job {shortId(event.job_id)}</a> : <span class="muted">{event.lease_id ? `lease ${shortId(event.lease_id)}` : ""}</span>}
              <span class="cut">{event.reason}</span>
              <span class="muted end">
                <Age at={event.at} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
