// What the recorded load and jobs would have made of another policy, beside what the present one makes of them.
import { get } from "../api";
import { Bar } from "../components/Bar";
import type { HourSample } from "../pure/heatmap";
import { instant, span } from "../time";
import { count } from "../units";

/** Reads how busy each hour of the last four weeks was, for the heat map. */
export async function loadWeek(signal: AbortSignal): Promise<HourSample[]> {
  const since = new Date(Date.now() - 28 * 86_400_000).toISOString();
  const list = await get("/load/hours", { query: { since }, signal });
  return list.hours.flatMap(({ at, ...rest }) => {
    const time = instant(at);
    return time === null ? [] : [{ at: time, ...rest }];
  });
}

export interface Side {
  started: number;
  never_started: number;
  average_wait_sec: number | null;
}

export interface Preview {
  jobs: number;
  before: Side;
  after: Side;
}

/** Asks what the last week would have run under another policy; null while the daemon's API cannot tell. */
export const previewPolicy = null as ((draft: string) => Promise<Preview>) | null;

export function PreviewResult({ preview }: { preview: Preview }) {
  const { jobs, before, after } = preview;
  return (
    <div class="preview" role="status">
      <h3>The last week</h3>
      <table class="preview-table">
        <thead>
          <tr>
            <td />
            <th scope="col">Policy in force</th>
            <th scope="col">With your change</th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">Would have started</th>
            {[before, after].map((side, index) => (
              <td key={index}>
                <strong class="num">{count(side.started)}</strong> of {count(jobs)}
                <Bar thin label="Started" total={jobs} parts={[{ label: "started", value: side.started, tone: index ? "accent" : "queued" }]} />
              </td>
            ))}
          </tr>
          <tr>
            <th scope="row">After, on average</th>
            {[before, after].map((side, index) => (
              <td key={index} class="num">
                {side.average_wait_sec === null ? "–" : span(side.average_wait_sec)}
              </td>
            ))}
          </tr>
        </tbody>
      </table>
    </div>
  );
}
