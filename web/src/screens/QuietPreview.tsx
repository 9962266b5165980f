// What the recorded load and jobs would have made of another policy, beside what the present one makes of them.
import { type Schemas, callToml, get } from "../api";
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

export type Preview = Schemas["PolicyPreview"];

/** Asks what the last week would have come to under another policy. */
export async function previewPolicy(draft: string): Promise<Preview> {
  return JSON.parse(await callToml("post", "/policy/preview", { body: draft })) as Preview;
}

export function PreviewResult({ preview }: { preview: Preview }) {
  const { jobs, present, given, since, until } = preview;
  const [from, to] = [instant(since), instant(until)];
  if (from === null || to === null) {
    return (
      <p class="preview muted" role="status">
        Nothing was measured yet: a preview needs a recorded load.
      </p>
    );
  }
  const sides = [present, given];
  return (
    <div class="preview" role="status">
      <h3>
        {to - from > 6 * 86_400_000 ? "The last week" : `The last ${span((to - from) / 1000)}, which is all that was measured`}
        {preview.left_out && <span class="muted">, the newest {count(jobs)} jobs</span>}
      </h3>
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
            {sides.map((side, index) => (
              <td key={index}>
                <strong class="num">{count(side.started)}</strong> of {count(jobs)}
                <Bar thin label="Started" total={jobs} parts={[{ label: "started", value: side.started, tone: index ? "accent" : "queued" }]} />
              </td>
            ))}
          </tr>
          <tr>
            <th scope="row">After, on average</th>
            {sides.map((side, index) => (
              <td key={index} class="num">
                {typeof side.average_wait_sec === "number" ? span(side.average_wait_sec) : "–"}
              </td>
            ))}
          </tr>
        </tbody>
      </table>
      <p class="hint">As if workers had been there for everything; dependencies, concurrency keys and required machines are left out.</p>
    </div>
  );
}
