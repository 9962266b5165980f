// What else there is to know of a job, in names and values.
import type { ComponentChildren } from "preact";
import type { Schemas } from "../api";
import { jobHref, jobsHref, shortId } from "../links";
import { span } from "../time";
import { measure } from "../units";
import { Age } from "./Age";
import { Card } from "./Card";

export function JobFacts({ job }: { job: Schemas["JobView"] }) {
  const heavy = Object.entries(job.constraints).filter(([, is]) => is).map(([name]) => name.replace("_heavy", "").replace("_", " "));
  const facts: [string, ComponentChildren][] = [];
  const add = (name: string, value: ComponentChildren) => {
    if (value !== undefined && value !== null && value !== "") facts.push([name, value]);
  };
  add("Type", <a href={jobsHref(`type:${job.job_type}`)}>{job.job_type}</a>);
  add("Priority", job.priority.toLowerCase());
  add("Cost", `${job.cost_units} units`);
  add("Start", job.start && { when_quiet: "when the machine is quiet", now: "now, unless it panics", ignore_load: "whatever the load" }[job.start]);
  add("Leans on", heavy.join(", "));
  // The daemon counts runs that have ended.
  if (job.state === "RUNNING") add("Attempt", `${job.attempts + 1} of ${job.max_attempts}`);
  else add("Attempts", `${job.attempts} of ${job.max_attempts}`);
  add("Rescues", job.rescues || null);
  add("Not before", job.next_earliest_start_at && <Age at={job.next_earliest_start_at} />);
  add("Deadline", job.deadline_at && <Age at={job.deadline_at} />);
  add("Expected", job.expected_duration_sec && span(job.expected_duration_sec));
  add("At most", job.max_runtime_sec && span(job.max_runtime_sec));
  add("Machine", job.node_id);
  add("Needs machine", job.required_node);
  add("Needs labels", (job.required_labels ?? []).join(", "));
  add("Lease", job.lease_id && <code>{shortId(job.lease_id)}</code>);
  add("Place in the lease", typeof job.position === "number" ? job.position + 1 : null);
  add("Processes", (job.pids ?? []).join(", "));
  add("Concurrency key", job.concurrency_key && `${job.concurrency_key}${job.concurrency_limit ? `, ${job.concurrency_limit} at a time` : ""}`);
  add("Unique key", job.unique_key);
  add("Idempotency key", job.idempotency_key);
  add(
    "Waits for",
    (job.waiting_for ?? []).length > 0 &&
      (job.waiting_for ?? []).slice(0, 8).map((id) => (
        <a key={id} class="fact-id" href={jobHref(id)}>
          <code>{shortId(id)}</code>
        </a>
      )),
  );
  for (const [name, value] of Object.entries(job.metrics ?? {})) add(name, measure(Number(value)));
  add("Trace", job.traceparent && <code class="cut" title={job.traceparent}>{job.traceparent}</code>);
  return (
    <Card title="Facts">
      <dl class="facts">
        {facts.filter(([, value]) => value !== false).map(([name, value]) => (
          <div key={name}>
            <dt class="muted">{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}
