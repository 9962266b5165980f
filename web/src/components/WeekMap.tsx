// The week of a machine as a grid of hours, darker where it is busier. Each cell says its number, too.
import { useMemo } from "preact/hooks";
import { bestStretch, DAYS, heatLevel, type HourSample, weekHeatmap } from "../pure/heatmap";
import { percent, plural } from "../units";

interface Props {
  samples: readonly HourSample[];
  zone: string;
  bounds: { quiet: number; normal: number; busy: number };
}

const two = (value: number): string => String(value).padStart(2, "0");

export function WeekMap({ samples, zone, bounds }: Props) {
  const cells = useMemo(() => weekHeatmap(samples, zone), [samples, zone]);
  const measured = cells.filter((cell) => cell.minutes > 0).length;
  const best = bestStretch(cells);
  return (
    <div class="week">
      <div class="week-scroll" tabIndex={0} role="region" aria-label="Heat map of the week">
        <table class="week-map">
          <caption class="hidden-text">How busy this machine is, by hour and weekday, 0 to 10</caption>
          <thead>
            <tr>
              <td />
              {Array.from({ length: 24 }, (_, hour) => (
                <th key={hour} scope="col" class={hour % 3 ? "minor" : undefined}>
                  {hour % 3 ? <span class="hidden-text">{hour}</span> : hour}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {DAYS.map((day, index) => (
              <tr key={day}>
                <th scope="row">{day}</th>
                {cells.slice(index * 24, index * 24 + 24).map((cell) => {
                  const level = cell.busy === undefined ? "none" : heatLevel(cell.busy, bounds);
                  const text = cell.busy === undefined ? "not measured" : `busy ${cell.busy.toFixed(1)}, quiet ${percent(cell.quiet ?? 0)} of the time`;
                  return (
                    <td key={cell.hour} class={`heat heat-${level}`} title={`${day} ${two(cell.hour)}:00: ${text}`}>
                      <span class="hidden-text">{cell.busy?.toFixed(1) ?? "–"}</span>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <ul class="legend">
        <li>
          <span class="legend-mark heat heat-0" aria-hidden="true" />
          <span class="legend-mark heat heat-1" aria-hidden="true" /> quiet
        </li>
        <li>
          <span class="legend-mark heat heat-2" aria-hidden="true" /> normal
        </li>
        <li>
          <span class="legend-mark heat heat-3" aria-hidden="true" /> busy
        </li>
        <li>
          <span class="legend-mark heat heat-4" aria-hidden="true" /> panic
        </li>
        <li>
          <span class="legend-mark heat heat-none" aria-hidden="true" /> not measured
        </li>
      </ul>
      <p class="muted">
        {measured === 0
          ? "Nothing is recorded yet. The map fills as the daemon runs: an hour a cell."
          : `${plural(measured, "hour")} of 168 measured. ${best ? `The longest quiet stretch begins ${DAYS[best.day]} ${two(best.hour)}:00 and lasts ${plural(best.hours, "hour")}.` : "No hour was quiet for 80 % of its time."}`}
      </p>
    </div>
  );
}
