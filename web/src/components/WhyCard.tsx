// Why a job does not run: each reason with the measured value beside its threshold, what would have to change, and when the job
// will probably start.
import type { Schemas } from "../api";
import { percent, measure } from "../units";
import { Age } from "./Age";
import { Card } from "./Card";
import { Icon } from "./Icon";
import { Linked } from "./Linked";

const BASIS: Record<Schemas["EstimateBasis"], string> = {
  schedule: "by its own start",
  running_leases: "by what runs now",
  quiet_profile: "by this machine's week",
};

export function WhyCard({ explain, running }: { explain: Schemas["Explain"]; running: boolean }) {
  const { reasons, estimate } = explain;
  return (
    <Card
      title={running ? "Why its run stands still" : "Why it is not running"}
      class="why"
      beside={
        estimate && (
          <span class="muted">
            starts probably <strong class="strong"><Age at={estimate.start_at} /></strong>, {BASIS[estimate.basis]}, {percent(estimate.confidence)} sure
          </span>
        )
      }
    >
      {reasons.length === 0 && <p>Nothing is in its way: it is about to start.</p>}
      <ol class="reasons">
        {reasons.map((reason) => (
          <li key={reason.code + reason.message}>
            <div class="reason-head">
              <strong>
                <Linked text={reason.message} />
              </strong>
              {reason.since && (
                <span class="muted">
                  since <Age at={reason.since} />
                </span>
              )}
              <code class="muted">{reason.code}</code>
            </div>
            {typeof reason.measured === "number" && typeof reason.threshold === "number" && <Meter measured={reason.measured} threshold={reason.threshold} />}
            {(reason.signals ?? []).length > 0 && (
              <table class="signals">
                <thead>
                  <tr>
                    <th scope="col">Signal</th>
                    <th scope="col">Measured</th>
                    <th scope="col">Bound</th>
                  </tr>
                </thead>
                <tbody>
                  {(reason.signals ?? []).map((signal) => (
                    <tr key={signal.signal}>
                      <th scope="row">{signal.signal}</th>
                      <td class="num">{signal.value}</td>
                      <td class="num">{signal.bound}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )}
            <p class="change">
              <Icon name="check" size={14} />
              <span>
                {running ? "It goes on when" : "It can start when"} <Linked text={reason.change.replace(/\.$/, "")} />.
              </span>
            </p>
          </li>
        ))}
      </ol>
      {explain.load_ignored && <p class="muted">The load of the machine does not matter for this job.</p>}
    </Card>
  );
}

/** A value beside its threshold, on one scale. */
function Meter({ measured, threshold }: { measured: number; threshold: number }) {
  const top = Math.max(measured, threshold, 0) * 1.15 || 1;
  const place = (value: number) => `${(Math.max(0, value) / top) * 100}%`;
  return (
    <div class="meter" role="img" aria-label={`measured ${measure(measured)}, threshold ${measure(threshold)}`}>
      {threshold > 0 && (
        <div class="meter-track">
          <span class="meter-fill" style={{ width: place(measured) }} />
          <span class="meter-limit" style={{ left: place(threshold) }} />
        </div>
      )}
      <span class="num">
        <strong>{measure(measured)}</strong> <span class="muted">measured, threshold</span> <strong>{measure(threshold)}</strong>
      </span>
    </div>
  );
}
