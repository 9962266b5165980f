// What a row of the list of jobs says beside the state: how far it is, why it waits, why it failed.
import type { Schemas } from "../api";
import type { JobRow } from "../jobPages";
import { Age } from "./Age";
import { Progress } from "./Bar";
import { Icon } from "./Icon";
import { Linked } from "./Linked";

interface Props {
  job: JobRow;
  reason: Schemas["Reason"] | undefined;
}

export function JobNote({ job, reason }: Props) {
  const stopping = job.cancel_requested && (job.state === "RUNNING" || job.state === "DISPATCHING");
  if (stopping) return <span class="cut tone-text warn">asked to stop</span>;
  switch (job.state) {
    case "RUNNING":
      return job.progress ? (
        <span class="job-progress">
          {typeof job.progress.fraction === "number" && <Progress fraction={job.progress.fraction} message={job.progress.message} />}
          {job.progress.message && <span class="cut muted" title={job.progress.message}>{job.progress.message}</span>}
        </span>
      ) : null;
    case "FAILED":
      return (
        <span class="cut tone-text failed" title={job.last_error ?? undefined}>
          {job.last_error ?? "failed"}
        </span>
      );
    case "QUEUED":
      return (
        <span class="cut muted" title={reason ? `${reason.message}\n${reason.change}` : undefined}>
          {job.deadline_at_risk && (
            <span class="tone-text warn">
              <Icon name="warning" size={13} /> deadline at risk ·{" "}
            </span>
          )}
          {reason ? <Linked text={reason.message} /> : job.attempts > 0 && job.last_error ? `attempt ${job.attempts} failed: ${job.last_error}` : ""}
        </span>
      );
    case "DISPATCHING":
      return (
        <span class="cut muted">
          {job.lease_id ? "claimed, not begun" : "reserved for a worker"}
          {job.dispatch_until && (
            <>
              , until <Age at={job.dispatch_until} />
            </>
          )}
        </span>
      );
    default:
      return job.progress?.message ? <span class="cut muted">{job.progress.message}</span> : null;
  }
}
