// A time relative to now, exact on hover and for screen readers.
import { exactTime, instant, now, relative, shortSpan, span } from "../time";

interface Props {
  /** A time of the API; nothing is shown for an absent one. */
  at: string | null | undefined;
  /** "3m" instead of "3 min ago", for dense tables. */
  short?: boolean;
  /** Instead of nothing. */
  none?: string;
}

export function Age({ at, short = false, none = "–" }: Props) {
  const time = instant(at);
  if (time === null) return <span class="muted">{none}</span>;
  const exact = exactTime(time);
  return (
    <time dateTime={at ?? ""} title={exact} class="age">
      {short ? shortSpan((now.value - time) / 1000) : relative(time, now.value)}
    </time>
  );
}

/** The time between two times; the second is now if it is absent. */
export function Span({ from, to }: { from: string | null | undefined; to?: string | null | undefined }) {
  const begin = instant(from);
  if (begin === null) return <span class="muted">–</span>;
  const end = instant(to) ?? now.value;
  return (
    <time class="age" title={`${exactTime(begin)} to ${to ? exactTime(end) : "now"}`}>
      {span(Math.max(0, (end - begin) / 1000))}
    </time>
  );
}
