// The jobs that a job waits for, and what those wait for, as a graph to pan and zoom. The API tells what a job depends on, not
// what depends on it, so the graph ends at this job.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Schemas, get } from "../api";
import { jobHref, shortId } from "../links";
import { layered } from "../pure/graph";
import { useResource } from "../resource";
import { go } from "../router";
import { plural } from "../units";
import { Card } from "./Card";
import { Icon } from "./Icon";
import { StateShape } from "./StateBadge";

type JobView = Schemas["JobView"];

const WIDE = 168;
const HIGH = 44;
const GAP_X = 56;
const GAP_Y = 14;
/** More are left out: nobody reads a larger graph, and each is a call. */
const MOST = 80;

interface Found {
  jobs: Map<string, JobView | null>;
  leftOut: boolean;
}

async function ancestors(job: JobView, signal: AbortSignal): Promise<Found> {
  const jobs = new Map<string, JobView | null>([[job.job_id, job]]);
  let wave = [...(job.depends_on ?? [])];
  let leftOut = false;
  while (wave.length) {
    const ids = [...new Set(wave)].filter((id) => !jobs.has(id)).slice(0, MOST - jobs.size);
    leftOut ||= new Set(wave.filter((id) => !jobs.has(id))).size > ids.length;
    if (!ids.length) break;
    // One that is forgotten, or another addon's, is a box without a name.
    const found = await Promise.all(ids.map((job_id) => get("/queue/jobs/{job_id}", { path: { job_id }, signal }).catch(() => null)));
    signal.throwIfAborted();
    wave = [];
    for (const [index, one] of found.entries()) {
      jobs.set(ids[index] ?? "", one);
      wave.push(...(one?.depends_on ?? []));
    }
  }
  return { jobs, leftOut };
}

export function DependencyGraph({ job }: { job: JobView }) {
  const waits = job.state === "QUEUED";
  const graph = useResource(`graph ${job.job_id} ${job.state}`, (signal) => ancestors(job, signal), { ...(waits ? { every: 3000 } : {}), keep: true });
  const found = graph.data;
  const placed = useMemo(() => {
    if (!found) return [];
    return layered([...found.jobs].map(([id, one]) => ({ id, after: one?.depends_on ?? [] })));
  }, [found]);
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<{ x: number; y: number; scale: number } | null>(null);
  const [follow, setFollow] = useState(false);
  const at = (column: number, row: number): [number, number] => [column * (WIDE + GAP_X), row * (HIGH + GAP_Y)];
  const right = Math.max(0, ...placed.map(({ column }) => column)) * (WIDE + GAP_X) + WIDE;
  const bottom = Math.max(0, ...placed.map(({ row }) => row)) * (HIGH + GAP_Y) + HIGH;

  const fit = () => {
    const element = box.current;
    if (!element || !placed.length) return;
    const scale = Math.min(1, (element.clientWidth - 32) / right, (element.clientHeight - 32) / bottom);
    setView({ scale, x: (element.clientWidth - right * scale) / 2, y: (element.clientHeight - bottom * scale) / 2 });
  };
  useEffect(fit, [placed.length, bottom]);
  const zoom = (factor: number, x?: number, y?: number) =>
    setView((old) => {
      const element = box.current;
      if (!old || !element) return old;
      const scale = Math.min(2, Math.max(0.15, old.scale * factor));
      const px = x ?? element.clientWidth / 2;
      const py = y ?? element.clientHeight / 2;
      return { scale, x: px - ((px - old.x) * scale) / old.scale, y: py - ((py - old.y) * scale) / old.scale };
    });
  // The first that runs is brought to the middle, whenever that is another one.
  const running = placed.find(({ id }) => found?.jobs.get(id)?.state === "RUNNING");
  useEffect(() => {
    const element = box.current;
    if (!follow || !running || !element) return;
    const [x, y] = at(running.column, running.row);
    setView((old) => {
      const scale = old?.scale ?? 1;
      return { scale, x: element.clientWidth / 2 - (x + WIDE / 2) * scale, y: element.clientHeight / 2 - (y + HIGH / 2) * scale };
    });
  }, [follow, running?.id]);
  // Not as a property: such a listener is passive, and the page would scroll, too.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 300), event.clientX - left, event.clientY - top);
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const places = new Map(placed.map((one) => [one.id, one]));
  return (
    <Card
      title="Dependencies"
      flush
      beside={
        <div class="graph-tools">
          <span class="muted">
            {found && plural(found.jobs.size - 1, "job")}
            {found?.leftOut && " and more"}
          </span>
          <button type="button" class="small toggle" aria-pressed={follow} onClick={() => setFollow(!follow)}>
            Follow the running one
          </button>
          <button type="button" class="ghost small" aria-label="Zoom in" onClick={() => zoom(1.3)}>
            <Icon name="plus" />
          </button>
          <button type="button" class="ghost small" aria-label="Zoom out" onClick={() => zoom(1 / 1.3)}>
            <Icon name="minus" />
          </button>
          <button type="button" class="ghost small" aria-label="Show all" title="Show all" onClick={fit}>
            <Icon name="fit" />
          </button>
        </div>
      }
    >
      <div
        class="graph"
        ref={box}
        style={{ height: `${bottom + 56}px` }}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, moved: false };
        }}
        onPointerMove={(event) => {
          const from = drag.current;
          if (!from || !(event.buttons & 1)) return;
          const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
          if (!from.moved && Math.hypot(dx, dy) < 4) return;
          // Only now: a captured pointer would take the click from a link.
          if (!from.moved) event.currentTarget.setPointerCapture(event.pointerId);
          drag.current = { x: event.clientX, y: event.clientY, moved: true };
          setFollow(false);
          setView((old) => old && { ...old, x: old.x + dx, y: old.y + dy });
        }}
        onPointerUp={() => {
          drag.current = null;
        }}
      >
        <svg width="100%" height="100%" role="group" aria-label="Graph of dependencies">
          <g transform={view ? `translate(${view.x} ${view.y}) scale(${view.scale})` : ""}>
            {placed.flatMap(({ id, column, row }) =>
              (found?.jobs.get(id)?.depends_on ?? []).map((before) => {
                const from = places.get(before);
                if (!from) return null;
                const [x1, y1] = at(from.column, from.row);
                const [x2, y2] = at(column, row);
                const [sx, sy, ex, ey] = [x1 + WIDE, y1 + HIGH / 2, x2, y2 + HIGH / 2];
                return <path key={`${before}${id}`} class={found?.jobs.get(before)?.state === "DONE" ? "edge over" : "edge"} d={`M${sx} ${sy}C${sx + GAP_X / 2} ${sy} ${ex - GAP_X / 2} ${ey} ${ex} ${ey}`} />;
              }),
            )}
            {placed.map(({ id, column, row }) => {
              const one = found?.jobs.get(id);
              const [x, y] = at(column, row);
              return (
                <g key={id} class={`graph-node${id === job.job_id ? " here" : ""} ${one ? `state-${one.state.toLowerCase()}` : "unknown"}`} transform={`translate(${x} ${y})`}>
                  <a
                    href={jobHref(id)}
                    aria-label={one ? `${one.job_type}, ${one.state.toLowerCase()}` : `job ${id}, not known`}
                    onClick={(event) => {
                      event.preventDefault();
                      go(jobHref(id));
                    }}
                  >
                    <title>{one?.progress?.message ?? id}</title>
                    <rect width={WIDE} height={HIGH} rx={7} />
                  </a>
                  {one && (
                    <g transform="translate(11 9)">
                      <StateShape state={one.state} />
                    </g>
                  )}
                  <text class="node-name" aria-hidden="true" x={30} y={19}>
                    {one ? cut(one.job_type, 19) : "not known"}
                  </text>
                  <text class="node-id" aria-hidden="true" x={30} y={35}>
                    {one ? `${one.state.toLowerCase()} · ` : ""}
                    {shortId(id)}
                  </text>
                </g>
              );
            })}
          </g>
        </svg>
      </div>
      <p class="hint graph-hint">Drag to move, Ctrl and the wheel to zoom.</p>
    </Card>
  );
}

const cut = (text: string, most: number) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
