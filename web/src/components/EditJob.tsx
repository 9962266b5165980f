// The dialog that changes a job which waits: its priority, when it may start, its deadline, its tags.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type Schemas, post } from "../api";
import { inputTime, instant } from "../time";
import { ErrorNote } from "./ErrorNote";
import { say } from "./Toast";

type JobView = Schemas["JobView"];
const PRIORITIES: readonly Schemas["Priority"][] = ["LOW", "NORMAL", "HIGH"];

const local = (at: string | null | undefined): string => {
  const time = instant(at);
  return time === null ? "" : inputTime(time);
};

export function EditJob({ job, close }: { job: JobView; close: (changed: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const was = { priority: job.priority, start: local(job.next_earliest_start_at), deadline: local(job.deadline_at), tags: (job.tags ?? []).join(", ") };
  const [is, setIs] = useState(was);
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const changed = is.priority !== was.priority || is.start !== was.start || is.deadline !== was.deadline || is.tags !== was.tags;
  const time = (text: string) => (text === "" ? null : new Date(text).toISOString());
  const save = async () => {
    // What stays as it is must be absent: null takes a time away.
    const body: Record<string, unknown> = {};
    if (is.priority !== was.priority) body.priority = is.priority;
    if (is.start !== was.start) body.earliest_start_at = time(is.start);
    if (is.deadline !== was.deadline) body.deadline_at = time(is.deadline);
    if (is.tags !== was.tags) body.tags = is.tags.split(",").map((tag) => tag.trim()).filter((tag) => tag !== "");
    try {
      await post("/queue/jobs/{job_id}/edit", { path: { job_id: job.job_id }, body: body as never });
      say("Changed.");
      close(true);
    } catch (failure) {
      setError(failure instanceof ApiError ? failure : new ApiError(0, "no_json", String(failure)));
    }
  };
  const field = (key: "start" | "deadline" | "tags") => (event: { currentTarget: HTMLInputElement }) => setIs({ ...is, [key]: event.currentTarget.value });
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby="edit-title"
      onCancel={(event) => {
        event.preventDefault();
        close(false);
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <h2 id="edit-title">Edit {job.job_type}</h2>
        {error && <ErrorNote error={error} />}
        <label class="field">
          Priority
          <select value={is.priority} onChange={(event) => setIs({ ...is, priority: event.currentTarget.value as Schemas["Priority"] })}>
            {PRIORITIES.map((priority) => (
              <option key={priority} value={priority}>
                {priority.toLowerCase()}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          <span>
            Not before <span class="muted">(empty: at any time)</span>
          </span>
          <input type="datetime-local" value={is.start} onInput={field("start")} />
        </label>
        <label class="field">
          <span>
            Deadline <span class="muted">(empty: none)</span>
          </span>
          <input type="datetime-local" value={is.deadline} onInput={field("deadline")} />
        </label>
        <label class="field">
          <span>
            Tags <span class="muted">(with commas between)</span>
          </span>
          <input type="text" value={is.tags} onInput={field("tags")} />
        </label>
        <div class="dialog-buttons">
          <button type="button" class="ghost" onClick={() => close(false)}>
            Keep as it is
          </button>
          <button type="submit" class="primary" disabled={!changed}>
            Change the job
          </button>
        </div>
      </form>
    </dialog>
  );
}
