// Load over time: a band of the machine's states, and lines for the signals below it, on one axis of time.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Schemas } from "../api";
import { chartColumns, stateBands, stateShares } from "../pure/bands";
import { dark } from "../theme";
import { clock, instant } from "../time";
import { percent } from "../units";
import { useMeasuredWidth } from "./measured";
import { quietTone, type QuietState } from "./QuietBadge";

type LoadSample = Schemas["LoadSample"];
type Placed = LoadSample & { time: number };

export interface Line {
  label: string;
  /** A variable of the style sheet. */
  color: string;
  value: (sample: LoadSample) => number | null | undefined;
  /** Dashes tell lines apart without their colours. */
  dash?: number[];
}

export interface Panel {
  title: string;
  unit: string;
  max: number;
  lines: readonly Line[];
}

/** The panels of the overview: what makes a machine busy. */
export const PANELS: readonly Panel[] = [
  { title: "Busy", unit: "", max: 10, lines: [{ label: "busy", color: "--accent", value: (s) => s.busy }] },
  {
    title: "CPU",
    unit: "%",
    max: 100,
    lines: [
      { label: "other programs", color: "--warn", value: (s) => scaled(s.foreign_cpu) },
      { label: "our jobs", color: "--running", value: (s) => scaled(s.own_cpu), dash: [5, 3] },
    ],
  },
  {
    title: "Pressure",
    unit: "%",
    max: 100,
    lines: [
      { label: "CPU", color: "--warn", value: (s) => s.psi_cpu },
      { label: "IO", color: "--dispatching", value: (s) => s.psi_io, dash: [5, 3] },
      { label: "memory", color: "--failed", value: (s) => s.psi_memory, dash: [1.5, 2.5] },
    ],
  },
  { title: "Memory", unit: "%", max: 100, lines: [{ label: "in use", color: "--done", value: (s) => (typeof s.memory_available === "number" ? 100 - s.memory_available * 100 : null) }] },
];

function scaled(part: number | null | undefined): number | null {
  return typeof part === "number" ? part * 100 : null;
}

const placed = (samples: readonly LoadSample[]): Placed[] =>
  samples
    .map((sample) => ({ ...sample, time: instant(sample.at) ?? Number.NaN }))
    .filter((sample) => !Number.isNaN(sample.time))
    .sort((a, b) => a.time - b.time);

export function LoadChart({ samples, panels = PANELS }: { samples: readonly LoadSample[]; panels?: readonly Panel[] }) {
  const [box, width] = useMeasuredWidth<HTMLDivElement>();
  const rows = placed(samples);
  const from = rows[0]?.time ?? 0;
  const to = rows[rows.length - 1]?.time ?? 1;
  return (
    <div class="load" ref={box}>
      <Bands rows={rows} from={from} to={to} />
      {width > 0 && rows.length > 1 && panels.map((panel) => <Plot key={panel.title} panel={panel} rows={rows} width={width} />)}
      <div class="load-axis muted" aria-hidden="true">
        <span>{rows.length ? clock(from) : ""}</span>
        <span>{rows.length ? clock(from + (to - from) / 2) : ""}</span>
        <span>{rows.length ? clock(to) : ""}</span>
      </div>
    </div>
  );
}

/** The states as a band, with the shares in words. */
function Bands({ rows, from, to }: { rows: readonly Placed[]; from: number; to: number }) {
  const bands = stateBands(
    rows.map(({ time, state }) => ({ at: time, state })),
    to,
  );
  const whole = Math.max(1, to - from);
  const shares = [...stateShares(bands)].sort((a, b) => b[1] - a[1]);
  const words = shares.map(([state, share]) => `${state.toLowerCase()} ${percent(share)}`).join(", ");
  return (
    <>
      <div class="bands" role="img" aria-label={`States: ${words || "nothing measured"}`}>
        {bands.map((band) => (
          <span
            key={band.from}
            class={`band ${quietTone(band.state as QuietState)}`}
            style={{ left: `${((band.from - from) / whole) * 100}%`, width: `${((band.to - band.from) / whole) * 100}%` }}
            title={`${band.state.toLowerCase()} ${clock(band.from)} to ${clock(band.to)}`}
          />
        ))}
      </div>
      <ul class="legend">
        {shares.map(([state, share]) => (
          <li key={state}>
            <span class={`legend-mark band ${quietTone(state as QuietState)}`} aria-hidden="true" />
            {state.toLowerCase()} <span class="num muted">{percent(share)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

const HEIGHT = 64;

function Plot({ panel, rows, width }: { panel: Panel; rows: readonly Placed[]; width: number }) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = chartColumns(
    rows,
    (row) => row.time,
    panel.lines.map((line) => line.value),
  ) as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;
  const theme = dark.value;

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string): string => style.getPropertyValue(name).trim();
    const made = new uPlot(
      {
        width,
        height: HEIGHT,
        padding: [4, 0, 2, 0],
        legend: { show: false },
        cursor: { sync: { key: "load" }, points: { size: 5 }, drag: { x: false, y: false }, y: false },
        scales: { x: { time: true }, y: { range: [0, panel.max] } },
        axes: [{ show: false }, { show: false }],
        series: [
          {},
          ...panel.lines.map((line) => ({
            label: line.label,
            stroke: color(line.color),
            width: 1.5,
            ...(line.dash ? { dash: line.dash } : { fill: `${color(line.color)}22` }),
            points: { show: false },
            spanGaps: false,
          })),
        ],
        hooks: { setCursor: [(u) => show(u, element, panel)] },
      },
      latest.current,
      element,
    );
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [width, theme, panel]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [rows]);

  const last = rows[rows.length - 1];
  return (
    <div class="plot">
      <div class="plot-head">
        <span class="plot-title">{panel.title}</span>
        {panel.lines.map((line) => {
          const value = last && line.value(last);
          return (
            <span key={line.label} class="plot-line">
              <svg width="16" height="6" aria-hidden="true">
                <line x1="0" x2="16" y1="3" y2="3" style={{ stroke: `var(${line.color})`, strokeWidth: 2, strokeDasharray: line.dash?.join(" ") ?? "" }} />
              </svg>
              {panel.lines.length > 1 && line.label} <strong class="num">{typeof value === "number" ? `${value.toFixed(panel.max > 10 ? 0 : 1)}${panel.unit && ` ${panel.unit}`}` : "–"}</strong>
            </span>
          );
        })}
        <span class="plot-cursor muted num" />
      </div>
      <div ref={host} class="plot-canvas" role="img" aria-label={`${panel.title} over time`} />
    </div>
  );
}

/** Writes the values under the cursor beside the title. */
function show(u: uPlot, element: HTMLElement, panel: Panel): void {
  const out = element.parentElement?.querySelector(".plot-cursor");
  if (!out) return;
  const index = u.cursor.idx;
  const time = typeof index === "number" ? u.data[0]?.[index] : undefined;
  if (typeof index !== "number" || time === undefined) {
    out.textContent = "";
    return;
  }
  const values = panel.lines.map((_, line) => u.data[line + 1]?.[index]);
  out.textContent = `${clock(time * 1000)}  ${values.map((value) => (typeof value === "number" ? value.toFixed(1) : "–")).join(" / ")}`;
}
