// The measured signals of a machine, each beside the value it has to come down to.
import type { SignalReading } from "../pure/signals";

export function SignalTable({ signals }: { signals: readonly SignalReading[] }) {
  return (
    <table class="signals">
      <thead>
        <tr>
          <th scope="col">Signal</th>
          <th scope="col" class="end">
            Now
          </th>
          <th scope="col" class="end">
            Quiet at
          </th>
          <td class="signal-bar" />
        </tr>
      </thead>
      <tbody>
        {signals.map((signal) => (
          <tr key={signal.key} class={signal.high ? "high" : undefined}>
            <th scope="row">
              {signal.name}
              {signal.high && <span class="too-high"> {signal.lack ? "too low" : "too high"}</span>}
            </th>
            <td class="num end">{signal.value}</td>
            <td class="num end muted">
              {signal.lack ? "≥" : "≤"} {signal.bound}
            </td>
            <td class="signal-bar">
              <span class="signal-track" aria-hidden="true">
                <span class="signal-level" style={{ width: `${signal.level * 10}%` }} />
                <span class="signal-bound" style={{ left: `${signal.at * 10}%` }} />
              </span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
