// A job's events, newest first.
import type { JobEvents } from "../useJobEvents";
import { clock, exactTime, instant } from "../time";
import { Card } from "./Card";
import { StateShape } from "./StateBadge";

/** By feel: what stands beside the rest of the page. */
const SHOWN = 60;

export function EventList({ events, more, readMore }: JobEvents) {
  const shown = events.slice(-SHOWN).reverse();
  return (
    <Card title="Events" beside={<span class="muted num">{events.length}{more && "+"}</span>} flush>
      <ol class="event-list">
        {shown.map((event) => {
          const at = instant(event.at) ?? 0;
          return (
            <li key={event.cursor}>
              <span class="event-shape">{event.state && <StateShape state={event.state} />}</span>
              <span>
                {event.event.toLowerCase().replaceAll("_", " ")}
                {event.attempt ? <span class="muted"> · attempt {event.attempt}</span> : null}
                {event.reason && <span class="event-reason">{event.reason}</span>}
              </span>
              <time class="muted num" dateTime={event.at} title={exactTime(at)}>
                {clock(at)}
              </time>
            </li>
          );
        })}
      </ol>
      {(more || events.length > SHOWN) && (
        <p class="event-more muted">
          {events.length > SHOWN && `The last ${SHOWN} of ${events.length}. `}
          {more && (
            <button type="button" class="small" onClick={readMore}>
              Read more
            </button>
          )}
        </p>
      )}
    </Card>
  );
}
