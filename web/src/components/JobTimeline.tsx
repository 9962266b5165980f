// A job's time line: its states, its attempts and its leases, one above the other over the same time.
import { useMemo } from "preact/hooks";
import { type Bar, type JobTimeline, ticks } from "../pure/jobTimeline";
import { exactTime, now, span } from "../time";
import { useMeasuredWidth } from "./measured";

const LABEL = 74;
const ROW = 24;
const HEAD = 22;
/** A bar that is shorter is drawn this wide: it happened, and must be seen. */
const LEAST = 3;

/** Puts bars that overlap into rows of their own. */
function rows(bars: readonly Bar[]): Bar[][] {
  const out: Bar[][] = [];
  for (const bar of bars) {
    const row = out.find((row) => (row.at(-1)?.to ?? Number.POSITIVE_INFINITY) <= bar.from);
    if (row) row.push(bar);
    else out.push([bar]);
  }
  return out;
}

export function JobTimelineView({ timeline }: { timeline: JobTimeline }) {
  const [box, width] = useMeasuredWidth<HTMLDivElement>();
  const { from } = timeline;
  const to = timeline.to ?? now.value;
  const lanes = useMemo(
    () => [
      { name: "states", rows: [timeline.states] },
      { name: "attempts", rows: rows(timeline.attempts).slice(0, 4) },
      { name: "leases", rows: rows(timeline.leases).slice(0, 4) },
    ].filter(({ rows }) => rows.some((row) => row.length)),
    [timeline],
  );
  const inner = Math.max(40, width - LABEL - 10);
  const length = Math.max(1, to - from);
  const x = (at: number) => LABEL + ((at - from) / length) * inner;
  const height = HEAD + lanes.reduce((sum, lane) => sum + lane.rows.length * ROW + 6, 0) + 4;
  let y = HEAD;
  return (
    <div class="job-timeline" ref={box}>
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={`History over ${span(length / 1000)}: ${timeline.states.map((bar) => bar.label).join(", ")}; ${timeline.attempts.length} attempts`}>
          {ticks(from, to, Math.max(2, Math.floor(inner / 90))).map((tick) => (
            <g key={tick}>
              <line class="tick" x1={x(from + tick)} x2={x(from + tick)} y1={HEAD - 5} y2={height} />
              <text class="tick-label" x={x(from + tick)} y={11} text-anchor={tick === 0 ? "start" : x(from + tick) > width - 40 ? "end" : "middle"}>
                {tick === 0 ? "submitted" : `+${span(tick / 1000)}`}
              </text>
            </g>
          ))}
          {lanes.map((lane) => {
            const top = y;
            y += lane.rows.length * ROW + 6;
            return (
              <g key={lane.name}>
                <text class="lane-label" x={0} y={top + 15}>
                  {lane.name}
                </text>
                {lane.rows.map((bars, row) =>
                  bars.map((bar) => {
                    const end = bar.to ?? to;
                    const point = bar.to === bar.from;
                    const left = point ? x(bar.from) - 4 : x(bar.from);
                    const wide = point ? 8 : Math.max(LEAST, x(end) - left);
                    const took = span((end - bar.from) / 1000);
                    const text = `${bar.label}${point ? "" : ` ${took}`}`;
                    return (
                      <g key={`${bar.label}${bar.from}`} class={`job-bar state-${bar.state.toLowerCase()}${bar.to === undefined ? " lasts" : ""} lane-${lane.name}`}>
                        <title>{`${bar.label}: ${exactTime(bar.from)}${point ? "" : `, ${took}${bar.to === undefined ? " so far" : ""}`}${bar.note ? `\n${bar.note}` : ""}`}</title>
                        <rect x={left} y={top + row * ROW + 2} width={wide} height={ROW - 6} rx={3} />
                        {wide > text.length * 6.4 + 10 && (
                          <text x={left + 6} y={top + row * ROW + 15}>
                            {text}
                          </text>
                        )}
                      </g>
                    );
                  }),
                )}
              </g>
            );
          })}
          {timeline.marks.map((mark) => (
            <g key={`${mark.event}${mark.at}`} class="job-mark">
              <title>{`${mark.label}, ${exactTime(mark.at)}`}</title>
              <path d={`M${x(mark.at)} ${HEAD - 1}l4 -6h-8z`} />
            </g>
          ))}
        </svg>
      )}
    </div>
  );
}
