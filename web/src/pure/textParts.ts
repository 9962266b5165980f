// Text of the daemon's taken apart: ids of jobs and times, which are shown in another way than the words around them.

export type Part = { text: string } | { job: string } | { at: number };

const FOUND = /([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/g;

export function textParts(text: string): Part[] {
  const parts: Part[] = [];
  let from = 0;
  for (const found of text.matchAll(FOUND)) {
    const [all, job, time] = found;
    const at = time === undefined ? Number.NaN : Date.parse(time);
    // What looks like a time and is none stays text.
    if (job === undefined && Number.isNaN(at)) continue;
    if (found.index > from) parts.push({ text: text.slice(from, found.index) });
    parts.push(job !== undefined ? { job } : { at });
    from = found.index + all.length;
  }
  if (from < text.length) parts.push({ text: text.slice(from) });
  return parts;
}
