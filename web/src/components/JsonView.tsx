// JSON that can be folded, with the numbers as they were written. Whatever it holds is text.
import { useState } from "preact/hooks";
import { ExactNumber, type Json, write } from "../json";
import { plural } from "../units";
import { copy } from "./CopyAs";
import { Icon } from "./Icon";

/** Deeper than this is folded at first. */
const OPEN_DEPTH = 2;
/** More entries or letters than this are shown on demand. By feel: what fits a screen. */
const ENTRIES = 100;
const LETTERS = 2000;

export function JsonView({ value, label }: { value: Json; label: string }) {
  return (
    <div class="json">
      <button type="button" class="ghost small json-copy" aria-label={`Copy ${label}`} title={`Copy ${label}`} onClick={() => copy(write(value, 2))}>
        <Icon name="copy" size={14} />
      </button>
      <Node value={value} depth={0} />
    </div>
  );
}

function Node({ name, value, depth }: { name?: string; value: Json; depth: number }) {
  const [open, setOpen] = useState(depth < OPEN_DEPTH);
  const [shown, setShown] = useState(ENTRIES);
  const key = name !== undefined && (
    <>
      <span class="json-key">{JSON.stringify(name)}</span>:{" "}
    </>
  );
  if (value === null || typeof value !== "object" || value instanceof ExactNumber) {
    return (
      <div class="json-line">
        {key}
        <Scalar value={value} />
      </div>
    );
  }
  const list = Array.isArray(value);
  const entries: [string, Json][] = list ? value.map((item, index) => [String(index), item]) : Object.entries(value);
  const [begin, end] = list ? ["[", "]"] : ["{", "}"];
  if (!entries.length) {
    return (
      <div class="json-line">
        {key}
        {begin}
        {end}
      </div>
    );
  }
  return (
    <div class="json-node">
      <button type="button" class="json-fold" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={open ? "down" : "chevron"} size={12} />
        <span>
          {key}
          {begin}
          {!open && (
            <span class="muted">
              {" "}
              {plural(entries.length, list ? "item" : "key")} {end}
            </span>
          )}
        </span>
      </button>
      {open && (
        <>
          <div class="json-children">
            {entries.slice(0, shown).map(([entry, item]) => (
              <Node key={entry} {...(list ? {} : { name: entry })} value={item} depth={depth + 1} />
            ))}
            {entries.length > shown && (
              <button type="button" class="small" onClick={() => setShown(shown + 10 * ENTRIES)}>
                {plural(entries.length - shown, "more entry", "more entries")}
              </button>
            )}
          </div>
          <div class="json-end">{end}</div>
        </>
      )}
    </div>
  );
}

function Scalar({ value }: { value: null | boolean | number | string | ExactNumber }) {
  const [whole, setWhole] = useState(false);
  if (typeof value === "string") {
    const cut = !whole && value.length > LETTERS;
    return (
      <span class="json-string">
        {JSON.stringify(cut ? value.slice(0, LETTERS) : value)}
        {cut && (
          <button type="button" class="small" onClick={() => setWhole(true)}>
            {plural(value.length - LETTERS, "more letter")}
          </button>
        )}
      </span>
    );
  }
  if (value instanceof ExactNumber) return <span class="json-number">{value.text}</span>;
  return <span class={typeof value === "number" ? "json-number" : "json-word"}>{String(value)}</span>;
}
