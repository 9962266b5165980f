// Jobs by the clock: when each schedule fires next, what became of its last jobs, and how to stop it or run it now.
import { type Schemas, get, post, remove } from "../api";
import { commands } from "../commands";
import { Age } from "../components/Age";
import { confirm } from "../components/Confirm";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { Icon } from "../components/Icon";
import { Page } from "../components/Page";
import { StateShape } from "../components/StateBadge";
import { complain, say } from "../components/Toast";
import { jobHref } from "../links";
import { nextRuns } from "../pure/cron";
import { useResource } from "../resource";
import { can } from "../session";
import { exactTime, instant, now, relative } from "../time";
import { plural } from "../units";

type Schedule = Schemas["ScheduleView"];
type JobView = Schemas["JobView"];

/** Firings that are shown. */
const RUNS = 5;

export function SchedulesScreen() {
  const list = useResource("schedules", (signal) => get("/schedules", { signal }), { live: { event: ["SUBMITTED"] }, every: 15_000, keep: true, gap: 3000 });
  const recent = useResource("schedules' jobs", (signal) => get("/queue/jobs/recent", { query: { limit: 500 }, signal }), { live: { event: ["SUBMITTED", "RUNNING", "DONE", "FAILED", "CANCELED"] }, every: 30_000, keep: true, gap: 3000 });
  const schedules = list.data?.schedules ?? [];
  // The soonest first; those that do not fire last.
  const sorted = [...schedules].sort((a, b) => (instant(a.next_at) ?? Number.MAX_SAFE_INTEGER) - (instant(b.next_at) ?? Number.MAX_SAFE_INTEGER) || (a.spec.name < b.spec.name ? -1 : 1));
  const jobs = new Map<string, JobView[]>();
  for (const job of recent.data?.jobs ?? []) {
    if (!job.schedule_id) continue;
    const known = jobs.get(job.schedule_id);
    if (known) known.push(job);
    else jobs.set(job.schedule_id, [job]);
  }
  const refresh = () => {
    list.refresh();
    recent.refresh();
  };
  return (
    <Page title="Schedules" about={schedules.length > 0 && "Jobs by the clock, the soonest first."} copy={{ call: { path: "/schedules" }, cli: commands.schedules() }}>
      {list.error && <ErrorNote error={list.error} retry={list.refresh} />}
      {schedules.length === 0 && !list.loading && !list.error && (
        <EmptyState title="No schedule yet" commands={[commands.addSchedule(), commands.addCommandSchedule()]}>
          A schedule submits a job when its time comes. The first of these submits a job of an addon each night, the second runs a command.
        </EmptyState>
      )}
      <ul class="schedules">
        {sorted.map((schedule) => (
          <li key={schedule.schedule_id} class={schedule.spec.paused ? "card schedule paused" : "card schedule"}>
            <ScheduleCard schedule={schedule} jobs={jobs.get(schedule.schedule_id) ?? []} refresh={refresh} />
          </li>
        ))}
      </ul>
    </Page>
  );
}

function ScheduleCard({ schedule, jobs, refresh }: { schedule: Schedule; jobs: readonly JobView[]; refresh: () => void }) {
  const { spec, schedule_id } = schedule;
  const zone = spec.time_zone || "UTC";
  const next = instant(schedule.next_at);
  // The daemon tells the first, with its jitter; the ones behind it follow from the expression.
  const later = spec.paused || next === null ? [] : nextRuns(spec.cron, zone, next, RUNS - 1);
  const path = { schedule_id };

  const runNow = async () => {
    const job = await post("/schedules/{schedule_id}/run", { path });
    say(job.duplicate ? "It was already submitted." : `Submitted a job of ${spec.name}.`);
    refresh();
  };
  const pause = async () => {
    await (spec.paused ? post("/schedules/{schedule_id}/resume", { path }) : post("/schedules/{schedule_id}/pause", { path }));
    say(spec.paused ? `Resumed ${spec.name}.` : `Paused ${spec.name}: it does not fire until it is resumed.`);
    refresh();
  };
  const drop = async () => {
    const agreed = await confirm({ title: `Remove the schedule ${spec.name}?`, body: <p>Its jobs stay. This cannot be undone; pausing can.</p>, action: "Remove the schedule", danger: true });
    if (!agreed) return;
    await remove("/schedules/{schedule_id}", { path });
    say(`Removed ${spec.name}.`);
    refresh();
  };

  return (
    <>
      <header>
        <h2>{spec.name}</h2>
        {spec.paused && <span class="badge state-warn">paused</span>}
        <code class="cron">{spec.cron}</code>
        <span class="muted">{zone}</span>
        {can("submit") && (
          <span class="push buttons">
            <button type="button" class="small" onClick={() => runNow().catch(complain)}>
              <Icon name="play" size={12} /> Run now <span class="hidden-text">{spec.name}</span>
            </button>
            <button type="button" class="small" onClick={() => pause().catch(complain)}>
              <Icon name={spec.paused ? "play" : "pause"} size={12} /> {spec.paused ? "Resume" : "Pause"} <span class="hidden-text">{spec.name}</span>
            </button>
            <button type="button" class="small ghost" aria-label={`Remove ${spec.name}`} title="Remove" onClick={() => drop().catch(complain)}>
              <Icon name="close" size={14} />
            </button>
          </span>
        )}
      </header>
      <div class="card-body">
        <dl class="facts">
          <div>
            <dt>Submits</dt>
            <dd>
              {spec.job.addon_id} / {spec.job.job_type} <span class="muted">({plural(spec.job.cost_units, "unit")})</span>{" "}
              {spec.missed && spec.missed !== "once" && <span class="tag">missed: {spec.missed}</span>}
              {spec.overlap === "forbid" && <span class="tag">no overlap</span>}
            </dd>
          </div>
          <div>
            <dt>Next</dt>
            <dd>
              {spec.paused || next === null ? (
                <span class="muted">{spec.paused ? "not while it is paused" : "never"}</span>
              ) : (
                <ol class="next-runs">
                  <li>
                    <time dateTime={schedule.next_at ?? ""} title={exactTime(next)}>
                      <strong>{relative(next, now.value)}</strong> <span class="muted">{inZone(next, zone)}</span>
                    </time>
                  </li>
                  {later.map((at) => (
                    <li key={at} class="muted">
                      <time dateTime={new Date(at).toISOString()} title={exactTime(at)}>
                        {inZone(at, zone)}
                      </time>
                    </li>
                  ))}
                </ol>
              )}
            </dd>
          </div>
          <div>
            <dt>Last</dt>
            <dd>{jobs.length > 0 ? <History jobs={jobs} /> : schedule.last_job ? <a href={jobHref(schedule.last_job)}><Age at={schedule.last_at} /></a> : <span class="muted">it has not fired yet</span>}</dd>
          </div>
        </dl>
      </div>
    </>
  );
}

/** The last jobs as marks, the newest right: a shape and a colour each. */
function History({ jobs }: { jobs: readonly JobView[] }) {
  const shown = jobs.slice(0, 20).reverse();
  const newest = jobs[0];
  return (
    <span class="history">
      <span class="history-marks">
        {shown.map((job) => (
          <a key={job.job_id} href={jobHref(job.job_id)} class="history-mark" title={`${job.state.toLowerCase()}, submitted ${exactTime(instant(job.created_at) ?? 0)}`} aria-label={`Job ${job.state.toLowerCase()}, submitted ${relative(instant(job.created_at) ?? 0, now.value)}`}>
            <StateShape state={job.state} />
          </a>
        ))}
      </span>
      {newest && (
        <span class="muted">
          {newest.state.toLowerCase()} <Age at={newest.ended_at ?? newest.created_at} />
        </span>
      )}
    </span>
  );
}

/** The time by the clock of the schedule's zone. */
function inZone(at: number, zone: string): string {
  try {
    return new Intl.DateTimeFormat("en-GB", { timeZone: zone, weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }).format(at);
  } catch {
    return exactTime(at);
  }
}
