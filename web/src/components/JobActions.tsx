// What can be done to a job in its state, by who looks. What is not allowed is not shown.
import { useState } from "preact/hooks";
import { type Schemas, address, post } from "../api";
import { instant, now } from "../time";
import { can } from "../session";
import { confirm } from "./Confirm";
import { EditJob } from "./EditJob";
import { Icon } from "./Icon";
import { complain, say } from "./Toast";

type JobView = Schemas["JobView"];

interface Props {
  job: JobView;
  /** True if its run was paused by somebody. */
  paused: boolean;
  changed: () => void;
}

export function JobActions({ job, paused, changed }: Props) {
  const [editing, setEditing] = useState(false);
  const { job_id, state } = job;
  const path = { job_id };
  const act = async (done: string, run: () => Promise<unknown>) => {
    try {
      await run();
      say(done);
    } catch (error) {
      complain(error);
    }
    changed();
  };
  const cancel = async () => {
    const answer = await confirm({
      title: "Cancel this job?",
      body: <p>{state === "RUNNING" ? "Its worker is asked to stop it, with everything below it." : "It ends at once, and will not run."} It can be retried afterwards.</p>,
      action: "Cancel 1 job",
      danger: true,
      reason: true,
    });
    if (answer) await act(state === "RUNNING" ? "Asked to stop." : "Cancelled.", () => post("/queue/jobs/{job_id}/cancel", { path, body: { reason: answer.reason } }));
  };
  const redrive = async () => {
    const answer = await confirm({ title: "Retry this job?", body: <p>It is queued again, and begins with its first attempt.</p>, action: "Retry 1 job", reason: true });
    if (!answer) return;
    await act("Queued again.", async () => {
      const { failed } = await post("/queue/jobs/redrive", { body: { job_ids: [job_id], query: null, reason: answer.reason } });
      const [first] = failed;
      if (first) throw new Error(first.error.message);
    });
  };
  const waitsForTime = state === "QUEUED" && (instant(job.next_earliest_start_at) ?? 0) > now.value;
  const open = state === "QUEUED" || state === "DISPATCHING" || state === "RUNNING";
  return (
    <>
      {waitsForTime && can("cancel") && (
        <button type="button" class="primary" onClick={() => act("It no longer waits for its time.", () => post("/queue/jobs/{job_id}/retry", { path, body: { reason: null } }))}>
          <Icon name="play" /> Run now
        </button>
      )}
      {(state === "FAILED" || state === "CANCELED") && can("cancel") && (
        <button type="button" class="primary" onClick={redrive}>
          <Icon name="retry" /> Retry
        </button>
      )}
      {state === "RUNNING" && can("cancel") && !job.cancel_requested && (
        <button type="button" onClick={() => act(paused ? "Resumed." : "Paused: its worker is told with its next heartbeat.", () => post(paused ? "/queue/jobs/{job_id}/resume" : "/queue/jobs/{job_id}/pause", { path }))}>
          <Icon name={paused ? "play" : "pause"} /> {paused ? "Resume" : "Pause"}
        </button>
      )}
      {state === "QUEUED" && can("submit") && (
        <button type="button" onClick={() => setEditing(true)}>
          <Icon name="edit" /> Edit
        </button>
      )}
      {open && can("cancel") && !job.cancel_requested && (
        <button type="button" class="danger" onClick={cancel}>
          <Icon name="cancel" /> Cancel
        </button>
      )}
      <a class="button ghost" href={address(`/queue/jobs/${job_id}/trace`)} download={`trace-${job_id}.json`} title="Chrome and Perfetto JSON">
        <Icon name="download" /> <span class="wide-only">Trace</span>
      </a>
      {editing && (
        <EditJob
          job={job}
          close={(done) => {
            setEditing(false);
            if (done) changed();
          }}
        />
      )}
    </>
  );
}
