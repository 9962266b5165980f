// The page of a job: its history, why it waits, what it prints, its data, and what can be done to it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Schemas, get, getExact } from "../api";
import { commands } from "../commands";
import { Age, Span } from "../components/Age";
import { Progress } from "../components/Bar";
import { Card } from "../components/Card";
import { copy } from "../components/CopyAs";
import { DependencyGraph } from "../components/DependencyGraph";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { EventList } from "../components/EventList";
import { Icon } from "../components/Icon";
import { JobActions } from "../components/JobActions";
import { JobFacts } from "../components/JobFacts";
import { JobTimelineView } from "../components/JobTimeline";
import { JsonView } from "../components/JsonView";
import { LiveTree } from "../components/LiveTree";
import { LogView } from "../components/LogView";
import { Page } from "../components/Page";
import { StateBadge } from "../components/StateBadge";
import { WhyCard } from "../components/WhyCard";
import type { Json } from "../json";
import { jobsHref } from "../links";
import { timelineOf } from "../pure/jobTimeline";
import { useResource } from "../resource";
import { href } from "../router";
import { useJobEvents } from "../useJobEvents";

/** A job whose payload and result keep their numbers. */
type JobView = Omit<Schemas["JobView"], "payload" | "result"> & { payload?: Json; result?: Json };

export function JobScreen({ id }: { id: string }) {
  const job = useResource(`job ${id}`, async (signal) => (await getExact("/queue/jobs/{job_id}", { path: { job_id: id }, signal })) as unknown as JobView, { live: { job_id: id }, gap: 300 });
  const view = job.data;
  if (!view) {
    return (
      <Page title="Job">
        {job.error?.status === 404 || job.error?.status === 400 ? (
          <EmptyState title="There is no such job">
            <p>
              No job has the id <code>{id}</code>. It may have been forgotten after the time that the policy keeps ended jobs, or belong to another addon.
            </p>
            <p>
              <a href={jobsHref(/^[0-9a-f-]{4,36}$/i.test(id) ? `id:${id}` : "")}>Look for it by a part of its id</a>
            </p>
          </EmptyState>
        ) : (
          job.error && <ErrorNote error={job.error} retry={job.refresh} />
        )}
      </Page>
    );
  }
  return <JobPage job={view} error={job.error} refresh={job.refresh} />;
}

function JobPage({ job, error, refresh }: { job: JobView; error: ReturnType<typeof useResource>["error"]; refresh: () => void }) {
  const { job_id: id, state } = job;
  const waits = state === "QUEUED" || state === "DISPATCHING";
  const events = useJobEvents(id);
  const timeline = useMemo(() => timelineOf(events.events), [events.events]);
  // A run may stand still, too: paused, or by the load.
  const why = useResource(waits || state === "RUNNING" ? `explain ${id} ${waits}` : null, (signal) => get("/queue/jobs/{job_id}/explain", { path: { job_id: id }, signal }), { every: 3000, live: { job_id: id } });
  const reasons = why.data?.reasons ?? [];
  const paused = state === "RUNNING" && reasons.some(({ code }) => code === "run_paused");
  const changed = () => {
    refresh();
    why.refresh();
  };
  const api = job as Schemas["JobView"];
  return (
    <Page
      title={job.job_type}
      class="job"
      beside={
        <>
          <StateBadge state={state} quarantined={job.quarantined} />
          {paused && <span class="badge state-warn">paused</span>}
          {job.cancel_requested && (state === "RUNNING" || state === "DISPATCHING") && <span class="badge state-warn">asked to stop</span>}
          {job.deadline_at_risk && <span class="badge state-warn">deadline at risk</span>}
          <button type="button" class="ghost small job-id" title="Copy the id" aria-label={`Copy the id ${id}`} onClick={() => copy(id)}>
            <code>{id}</code> <Icon name="copy" size={13} />
          </button>
        </>
      }
      about={
        <>
          <a href={jobsHref(`addon:${job.addon_id}`)}>{job.addon_id}</a>, submitted <Age at={job.created_at} />
          {job.started_at && (
            <>
              {state === "RUNNING" ? ", runs for " : ", ran "}
              <Span from={job.started_at} to={job.ended_at} />
            </>
          )}
          {job.schedule_id && (
            <>
              , by a <a href={href("/schedules")}>schedule</a>
            </>
          )}
          {(job.tags ?? []).map((tag) => (
            <a key={tag} class="tag" href={jobsHref(/\s/.test(tag) ? `tag:"${tag}"` : `tag:${tag}`)}>
              {tag}
            </a>
          ))}
        </>
      }
      actions={<JobActions job={api} paused={paused} changed={changed} />}
      copy={{ call: { path: `/queue/jobs/${id}` }, cli: commands.show(id) }}
    >
      {error && <ErrorNote error={error} retry={refresh} />}
      {job.progress && (state === "RUNNING" || job.progress.message) && (
        <div class={state === "RUNNING" ? "job-now" : "job-now over"}>
          {state === "RUNNING" && <Progress fraction={job.progress.fraction} message={job.progress.message} />}
          {job.progress.message && <span class="job-message">{job.progress.message}</span>}
        </div>
      )}
      {job.last_error && state !== "DONE" && (
        <div class={state === "FAILED" ? "note bad" : "note warn"}>
          <Icon name="warning" />
          <div>
            <strong>{state === "FAILED" ? `Failed after ${job.attempts} of ${job.max_attempts} attempts` : `Attempt ${job.attempts} of ${job.max_attempts} failed`}</strong>
            <ErrorText text={job.last_error} />
          </div>
        </div>
      )}
      {why.data && (waits || (state === "RUNNING" && reasons.length > 0)) && <WhyCard explain={why.data} running={!waits} />}
      <div class="job-columns">
        <div class="job-main">
          {timeline && (
            <Card title="Timeline">
              <JobTimelineView timeline={timeline} />
            </Card>
          )}
          {state === "RUNNING" && <LiveTree jobId={id} />}
          {(job.depends_on ?? []).length > 0 && <DependencyGraph job={api} />}
          <LogView jobId={id} attempts={timeline?.attempts ?? []} running={state === "RUNNING"} ended={!waits && state !== "RUNNING"} />
          {job.result !== undefined && job.result !== null && (
            <Card title="Result">
              <JsonView value={job.result} label="the result" />
            </Card>
          )}
          <Card title="Payload">{job.payload === undefined || job.payload === null ? <p class="muted">It was submitted without one.</p> : <JsonView value={job.payload} label="the payload" />}</Card>
        </div>
        <div class="job-side">
          <JobFacts job={api} />
          <EventList {...events} />
        </div>
      </div>
    </Page>
  );
}

/** A long error is folded: a backtrace must not push away everything else. */
function ErrorText({ text }: { text: string }) {
  const [open, setOpen] = useState(false);
  const [long, setLong] = useState(false);
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const element = box.current;
    if (element) setLong(element.scrollHeight > element.clientHeight + 4);
  }, [text]);
  return (
    <>
      <pre ref={box} class={open ? "error-text open" : "error-text"}>
        {text}
      </pre>
      {(long || open) && (
        <button type="button" class="small" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Show less" : "Show all"}
        </button>
      )}
    </>
  );
}
