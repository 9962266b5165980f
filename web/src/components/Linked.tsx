// Text of the daemon's in which the ids of jobs are links.
import { jobHref, shortId } from "../links";

const ID = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

export function Linked({ text }: { text: string }) {
  const parts: preact.ComponentChild[] = [];
  let from = 0;
  for (const found of text.matchAll(ID)) {
    parts.push(
      text.slice(from, found.index),
      <a key={found.index} href={jobHref(found[0])} title={found[0]}>
        <code>{shortId(found[0])}</code>
      </a>,
    );
    from = found.index + found[0].length;
  }
  parts.push(text.slice(from));
  return <>{parts}</>;
}
