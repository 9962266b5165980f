// A table of any length: only the rows that are seen, and some around them, are in the page. All rows have one height, so that
// the place of a row is a product. Rows may arrive later; `row` returns undefined until then, and `onRange` says which are
// looked at.
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useCommands } from "../keys";
import { go } from "../router";
import { type Width, width } from "../width";

export interface Column<T> {
  key: string;
  /** What stands above it. */
  title: ComponentChildren;
  /** A track of a CSS grid: "minmax(8rem, 2fr)". */
  track: string;
  cell: (row: T, index: number) => ComponentChildren;
  /** Numbers stand right. */
  end?: boolean;
  /** Left out when there is less room than this. */
  from?: Width;
}

interface Props<T> {
  /** What the rows are, for screen readers: "Jobs". */
  label: string;
  columns: readonly Column<T>[];
  count: number;
  row: (index: number) => T | undefined;
  /** Names a row, also while its place changes. */
  rowKey: (row: T) => string;
  /** Where a click or Enter on a row leads. */
  open?: (row: T) => string;
  rowClass?: (row: T) => string | undefined;
  /** Rows can be selected. */
  selection?: { has: (row: T) => boolean; toggle: (row: T, index: number, range: boolean) => void; all: "none" | "some" | "all"; toggleAll: () => void };
  /** Which rows are seen, from the first to before the second. */
  onRange?: (from: number, to: number) => void;
  /** Whether the first row is at the top. */
  onTop?: (is: boolean) => void;
  /** Takes the height that is left on the page, and scrolls by itself. Else it is as high as its rows. */
  fill?: boolean;
  rowHeight?: number;
  /** Instead of rows, if there are none. */
  empty?: ComponentChildren;
  /** The table has the keys j, k, Enter and x. One table of a screen should. */
  keys?: boolean;
}

const AROUND = 8;
const ORDER: Record<Width, number> = { narrow: 0, medium: 1, wide: 2 };

/** The rows to render, from the first to before the second. */
export function rowsSeen(top: number, height: number, rowHeight: number, count: number): [number, number] {
  const from = Math.max(0, Math.floor(top / rowHeight) - AROUND);
  const to = Math.min(count, Math.ceil((top + height) / rowHeight) + AROUND);
  return [Math.min(from, count), Math.max(to, 0)];
}

export function Table<T>(props: Props<T>) {
  const { label, count, row, rowKey, open, rowClass, selection, onRange, onTop, fill = false, rowHeight = 36, empty, keys = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: fill ? 900 : Number.POSITIVE_INFINITY });
  const [active, setActive] = useState<string | null>(null);
  const columns = props.columns.filter((column) => !column.from || ORDER[column.from] <= ORDER[width.value]);
  const [from, to] = fill ? rowsSeen(view.top, view.height, rowHeight, count) : [0, count];

  const measure = useCallback(() => {
    const element = box.current;
    if (!element) return;
    onTop?.(element.scrollTop < rowHeight / 2);
    // In steps, so that a scroll by some pixels renders nothing.
    const step = rowHeight * (AROUND / 2);
    const top = Math.floor(element.scrollTop / step) * step;
    const height = Math.ceil(element.clientHeight / step) * step + step;
    setView((old) => (old.top === top && old.height === height ? old : { top, height }));
  }, [rowHeight, onTop]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!fill || !element) return;
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [fill, measure]);

  useEffect(() => {
    onRange?.(from, to);
  }, [from, to, count, onRange]);

  const seen: { index: number; row: T | undefined; key: string }[] = [];
  for (let index = from; index < to; index++) {
    const one = row(index);
    seen.push({ index, row: one, key: one === undefined ? `#${index}` : rowKey(one) });
  }

  // The active row keeps the focus when rows come above it: it is known by its key.
  const move = (by: number) => {
    const at = seen.find(({ key }) => key === active)?.index;
    const first = fill && box.current ? Math.ceil(box.current.scrollTop / rowHeight) : 0;
    const next = Math.min(count - 1, Math.max(0, at === undefined ? first : at + by));
    const one = row(next);
    if (one === undefined) return;
    setActive(rowKey(one));
    const element = box.current;
    if (fill && element) {
      const head = rowHeight;
      const top = next * rowHeight;
      if (top < element.scrollTop) element.scrollTop = top;
      else if (top + rowHeight + head > element.scrollTop + element.clientHeight) element.scrollTop = top + rowHeight + head - element.clientHeight;
      measure();
    }
  };
  useEffect(() => {
    if (active !== null) box.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(active)}"]`)?.focus({ preventScroll: fill });
  }, [active]);
  const atActive = (run: (row: T, index: number) => void) => {
    const found = seen.find(({ key }) => key === active);
    if (found?.row !== undefined) run(found.row, found.index);
  };
  useCommands(
    keys
      ? [
          { keys: "j", label: "Next row", group: label, run: () => move(1) },
          { keys: "k", label: "Previous row", group: label, run: () => move(-1) },
          ...(open ? [{ keys: "Enter", label: "Open the row", group: label, run: () => atActive((one) => go(open(one))) }] : []),
          ...(selection ? [{ keys: "x", label: "Select the row", group: label, run: () => atActive((one, index) => selection.toggle(one, index, false)) }] : []),
        ]
      : [],
  );

  const tracks = (selection ? "2.25rem " : "") + columns.map((column) => column.track).join(" ");
  return (
    <div ref={box} class={fill ? "table fill" : "table"} role="table" aria-label={label} aria-rowcount={count + 1} onScroll={fill ? measure : undefined} style={{ "--tracks": tracks, "--row": `${rowHeight}px` }} tabIndex={fill ? 0 : undefined}>
      <div class="table-head" role="rowgroup">
        <div class="tr" role="row" aria-rowindex={1}>
          {selection && (
            <div class="th select" role="columnheader">
              <input type="checkbox" aria-label="Select all that match" checked={selection.all === "all"} indeterminate={selection.all === "some"} onChange={selection.toggleAll} />
            </div>
          )}
          {columns.map((column) => (
            <div key={column.key} class={column.end ? "th end" : "th"} role="columnheader">
              {column.title}
            </div>
          ))}
        </div>
      </div>
      {count === 0 && empty && (
        <div role="rowgroup">
          <div role="row">
            <div role="cell">{empty}</div>
          </div>
        </div>
      )}
      <div class="table-body" role="rowgroup" style={fill ? { height: `${count * rowHeight}px` } : {}}>
        {seen.map(({ index, row: one, key }) => (
          <div
            key={key}
            data-key={key}
            class={`tr${one === undefined ? " pending" : ""}${open && one !== undefined ? " opens" : ""}${key === active ? " active" : ""}${one !== undefined && selection?.has(one) ? " selected" : ""} ${(one !== undefined && rowClass?.(one)) || ""}`}
            role="row"
            aria-rowindex={index + 2}
            tabIndex={-1}
            style={fill ? { transform: `translateY(${index * rowHeight}px)` } : {}}
            onClick={(event) => {
              if (one === undefined || !open || event.defaultPrevented) return;
              if (event.target instanceof Element && event.target.closest("a, button, input, label, summary")) return;
              if (getSelection()?.toString()) return;
              go(open(one));
            }}
          >
            {selection && (
              <div class="td select" role="cell">
                {one !== undefined && (
                  <input
                    type="checkbox"
                    aria-label={`Select ${key}`}
                    checked={selection.has(one)}
                    onClick={(event) => {
                      selection.toggle(one, index, event.shiftKey);
                    }}
                  />
                )}
              </div>
            )}
            {columns.map((column) => (
              <div key={column.key} class={column.end ? "td end" : "td"} role="cell">
                {one === undefined ? <span class="placeholder" /> : column.cell(one, index)}
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}
