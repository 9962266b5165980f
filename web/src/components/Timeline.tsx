// The jobs that run, and those that ended a moment ago, as a live timeline. The layout is computed in pure/timeline; here it is
// drawn, once a second.
import { useMemo } from "preact/hooks";
import type { Schemas } from "../api";
import { jobHref } from "../links";
import { jobLabel, layoutTimeline, type TimelineBar } from "../pure/timeline";
import { instant, now, shortSpan, span } from "../time";
import { plural } from "../units";
import { useMeasuredWidth } from "./measured";

type JobView = Schemas["JobView"];

const HEAD = 20;

/** A job that was cancelled and has not stopped has a look of its own. */
const lookOf = (job: JobView): string => (job.ended_at ? job.state.toLowerCase() : job.cancel_requested ? "cancelling" : job.deadline_at_risk ? "at-risk" : job.state.toLowerCase());

export function Timeline({ jobs }: { jobs: readonly JobView[] }) {
  const [box, width] = useMeasuredWidth<HTMLDivElement>();
  const time = now.value;
  const byId = useMemo(() => new Map(jobs.map((job) => [job.job_id, job])), [jobs]);
  const layout = useMemo(
    () =>
      width === 0
        ? undefined
        : layoutTimeline(
            jobs.map((job) => ({
              id: job.job_id,
              addon: job.addon_id,
              label: jobLabel(job),
              state: lookOf(job),
              startedAt: instant(job.started_at) ?? time,
              endedAt: instant(job.ended_at) ?? undefined,
              fraction: job.ended_at ? undefined : (job.progress?.fraction ?? undefined),
            })),
            { now: time, width, minSpan: 60_000 },
          ),
    [jobs, width, time],
  );
  const title = ({ job, clipped }: TimelineBar): string => {
    const ended = job.endedAt === undefined ? "" : `, ${job.state}`;
    const view = byId.get(job.id);
    const done = job.fraction === undefined ? "" : `, ${Math.floor(job.fraction * 100)} %`;
    const message = view?.progress?.message ? `: ${view.progress.message}` : "";
    return `${job.label} (${view?.job_type ?? ""} of ${job.addon})\n${clipped ? "more than " : ""}${span(((job.endedAt ?? time) - job.startedAt) / 1000)}${ended}${done}${message}`;
  };
  return (
    <div class="timeline" ref={box}>
      {layout && (
        <svg width={width} height={layout.height + HEAD} role="group" aria-label={`Timeline of ${plural(jobs.length, "job")}`}>
          {layout.ticks.map(({ x, ago }) => (
            <g key={ago}>
              <line class="timeline-tick" x1={x} x2={x} y1={HEAD - 4} y2={layout.height + HEAD} />
              <text class="timeline-time" x={ago === 0 ? x : x} y={11} text-anchor={x > width - 24 ? "end" : "middle"}>
                {ago === 0 ? "now" : `−${shortSpan(ago / 1000)}`}
              </text>
            </g>
          ))}
          {layout.groups.map(({ addon, y, jobs: inside, hidden }) => (
            <text key={addon} class="timeline-addon" x={0} y={y + HEAD + 14}>
              {addon}
              <tspan class="timeline-count" dx="6">
                {inside}
                {hidden > 0 && ` (${hidden} not shown)`}
              </tspan>
            </text>
          ))}
          {layout.bars.map((bar) => (
            <g key={bar.job.id} class={`timeline-bar look-${bar.job.state}`}>
              <a href={jobHref(bar.job.id)} aria-label={title(bar).replace("\n", ", ")}>
                <title>{title(bar)}</title>
                <rect class="timeline-whole" x={bar.x} y={bar.y + HEAD} width={bar.width} height={bar.height} rx="4" />
                {bar.done !== undefined && <rect class="timeline-done" x={bar.x} y={bar.y + HEAD} width={bar.done} height={bar.height} rx="4" />}
              </a>
              {/* Beside the link, which has the whole label as its name: this one may be cut. The label stands in the bar if it has the room, else left of a bar that ends now; a short job that has ended has none. */}
              {bar.width > 7 * bar.job.label.length + 16 ? (
                <text class="timeline-label" aria-hidden="true" x={Math.max(bar.x, 0) + 8} y={bar.y + HEAD + 15}>
                  {bar.job.label}
                </text>
              ) : (
                bar.room > 50 &&
                bar.job.endedAt === undefined && (
                  <text class="timeline-label outside" aria-hidden="true" x={bar.x - 6} y={bar.y + HEAD + 15} text-anchor="end">
                    {bar.job.label.length * 6.5 > bar.room - 12 ? `${bar.job.label.slice(0, Math.max(3, Math.floor((bar.room - 26) / 6.5)))}…` : bar.job.label}
                  </text>
                )
              )}
            </g>
          ))}
        </svg>
      )}
    </div>
  );
}
