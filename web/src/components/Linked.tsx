// Text of the daemon's in which the ids of jobs are links, and times are those of this browser's zone.
import { jobHref, shortId } from "../links";
import { textParts } from "../pure/textParts";
import { exactTime, now, relative, shortTime } from "../time";

export function Linked({ text }: { text: string }) {
  return (
    <>
      {textParts(text).map((part, index) =>
        "job" in part ? (
          <a key={index} href={jobHref(part.job)} title={part.job}>
            <code>{shortId(part.job)}</code>
          </a>
        ) : "at" in part ? (
          <time key={index} dateTime={new Date(part.at).toISOString()} title={`${exactTime(part.at)}, ${relative(part.at, now.peek())}`}>
            {shortTime(part.at, now.peek())}
          </time>
        ) : (
          part.text
        ),
      )}
    </>
  );
}
