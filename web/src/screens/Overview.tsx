// The first screen: what waits, what runs, what is wrong, and whether the machine is quiet.
import { useMemo } from "preact/hooks";
import { type Schemas, callToml, get, post } from "../api";
import { commands } from "../commands";
import { Age } from "../components/Age";
import { CapacityBar } from "../components/CapacityBar";
import { Card } from "../components/Card";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { LoadChart } from "../components/LoadChart";
import { Page } from "../components/Page";
import { QuietBadge } from "../components/QuietBadge";
import { SignalTable } from "../components/SignalTable";
import { StateBadge } from "../components/StateBadge";
import { Stat } from "../components/Stat";
import { Timeline } from "../components/Timeline";
import { FAILED_LATELY_TEXT, countLately, loadFailed, newestFailures } from "../failures";
import { jobHref, jobsHref, shortId } from "../links";
import { needAttention, troubleText } from "../pure/attention";
import { readNumber } from "../pure/policy-text";
import { readSignals } from "../pure/signals";
import { jobLabel } from "../pure/timeline";
import { useResource } from "../resource";
import { href } from "../router";
import { instant, now, span } from "../time";
import { count, plural } from "../units";

type JobView = Schemas["JobView"];

/** Jobs that are looked through for trouble. */
const LOOKED_AT = 200;

export function OverviewScreen() {
  const status = useResource("status", (signal) => get("/status", { signal }), { live: {}, every: 5000, keep: true });
  const open = useResource("open", (signal) => loadOpen(signal), { live: {}, every: 10_000, keep: true });
  const failed = useResource("failed", (signal) => loadFailed(signal), { live: { event: ["FAILED", "REDRIVEN"] }, every: 30_000, keep: true, gap: 3000 });
  const load = useResource("load", (signal) => get("/load", { query: { by: "sample", limit: 1200 }, signal }), { every: 5000, keep: true });
  const policy = useResource("policy", (signal) => callToml("get", "/policy", { signal }), { every: 60_000, keep: true });

  const data = status.data;
  const node = data?.nodes[0];
  const waiting = (data?.jobs.QUEUED ?? 0) + (data?.jobs.DISPATCHING ?? 0);
  const running = data?.jobs.RUNNING ?? 0;
  const oldest = data?.oldest_queued_sec ?? null;
  const samples = load.data?.samples ?? [];
  const last = samples[samples.length - 1];
  const lately = failed.data && countLately(failed.data, now.value);
  const failures = useMemo(() => newestFailures(failed.data), [failed.data]);
  const quietMax = readNumber(policy.data ?? "", "quiet.quiet_max") ?? 2;
  const signals = last ? readSignals(last, policy.data ?? "", quietMax) : [];
  const high = signals.filter((signal) => signal.high);
  const runningJobs = useMemo(() => (open.data?.jobs ?? []).filter((job) => job.state === "RUNNING"), [open.data]);
  const drawn = useMemo(() => [...runningJobs, ...(open.data?.ended ?? [])], [runningJobs, open.data]);
  const attention = useMemo(() => needAttention([...(open.data?.jobs ?? []), ...failures], open.data?.reasons ?? new Map(), now.peek()), [open.data, failures]);
  const empty = data !== undefined && Object.values(data.jobs).every((jobs) => !jobs);

  return (
    <Page title="Overview" copy={{ call: { path: "/status" }, cli: commands.status() }}>
      {status.error && <ErrorNote error={status.error} retry={status.refresh} />}
      <div class="stats">
        <Stat label="Waiting" value={data ? count(waiting) : "–"} to={jobsHref("state:waiting")} note={data && `${count(data.jobs.DISPATCHING ?? 0)} being dispatched`} />
        <Stat label="Running" value={data ? count(running) : "–"} to={jobsHref("state:running")} tone="running" note={node && `${plural(node.active_leases, "lease")}`} />
        <Stat label="Oldest waiting" value={data ? (oldest === null ? "none" : span(oldest)) : "–"} to={jobsHref("state:waiting")} tone={oldest !== null && oldest > 3600 ? "warn" : "plain"} note={oldest === null ? "no job could start" : "could start, and waits"} />
        <Stat label="Failed, last hour" value={lately ? `${count(lately.number)}${lately.more ? "+" : ""}` : "–"} to={jobsHref(FAILED_LATELY_TEXT)} tone={lately?.number ? "failed" : "done"} note={data && `${count(data.jobs.FAILED ?? 0)} in all`} />
      </div>

      {empty && (
        <EmptyState title="No jobs yet" commands={[commands.run(), commands.submit()]}>
          Type one of these in a terminal, and watch it here.
        </EmptyState>
      )}

      {attention.length > 0 && (
        <Card title={`Needs attention (${count(attention.length)})`} flush class="attention">
          <ul class="rows">
            {attention.slice(0, 8).map(({ job, trouble, seconds }) => (
              <li key={job.job_id}>
                <span class={`trouble trouble-${trouble}`}>{troubleText(trouble)}</span>
                <a href={jobHref(job.job_id)} class="cut">
                  {jobLabel(job)} <span class="muted">{shortId(job.job_id)}</span>
                </a>
                <span class="muted">{job.addon_id}</span>
                <span class="num muted end">{seconds !== 0 && span(Math.abs(seconds))}</span>
              </li>
            ))}
          </ul>
          {attention.length > 8 && <p class="rows-more muted">and {plural(attention.length - 8, "more")}</p>}
        </Card>
      )}

      <div class="columns">
        <div class="stack">
          <Card
            title={running > 0 ? "Running now" : "Just now"}
            beside={
              runningJobs.length < running && (
                <span class="muted">
                  the newest {count(runningJobs.length)} of {count(running)}
                </span>
              )
            }
          >
            {drawn.length > 0 ? <Timeline jobs={drawn} /> : <NothingRuns waiting={waiting} high={high.length > 0} />}
          </Card>
          <RecentFailures jobs={failures} />
        </div>
        <Card title="Is the machine quiet?" beside={node && <QuietBadge state={node.state} />}>
          {node && (
            <>
              <p class="verdict">{verdict(node, high, quietMax)}</p>
              <CapacityBar capacity={node.capacity} used={node.used} reserved={node.reserved} units={readNumber(policy.data ?? "", "capacity.units")} legend />
              {signals.length > 0 && <SignalTable signals={signals} />}
              <p class="more">
                <a href={href("/quiet")}>The week, and the policy</a>
              </p>
            </>
          )}
          {!node && !status.loading && <p class="muted">No machine has described itself yet.</p>}
        </Card>
      </div>

      <Card title="Load" beside={<span class="muted">{samples.length > 1 ? `the last ${span(((instant(last?.at) ?? 0) - (instant(samples[0]?.at) ?? 0)) / 1000)}` : ""}</span>}>
        {samples.length > 1 ? <LoadChart samples={samples} /> : <p class="muted">Nothing was measured yet: the first line appears after a few seconds.</p>}
      </Card>

      {data && Object.keys(data.nodes).length > 1 && (
        <p>
          <a href={href("/machines")}>{plural(data.nodes.length, "machine")}</a> share this store.
        </p>
      )}
    </Page>
  );
}

interface Open {
  jobs: JobView[];
  /** Those that ended a moment ago. */
  ended: JobView[];
  reasons: Map<string, string>;
}

/** Reads the newest jobs that run or wait, and why the waiting ones do. */
async function loadOpen(signal: AbortSignal): Promise<Open> {
  const [running, waiting, ended] = await Promise.all([
    get("/queue/jobs/recent", { query: { state: ["RUNNING"], limit: LOOKED_AT }, signal }),
    get("/queue/jobs", { query: { state: ["QUEUED", "DISPATCHING"], limit: LOOKED_AT }, signal }),
    get("/queue/jobs/recent", { query: { state: ["DONE", "FAILED", "CANCELED"], limit: 100 }, signal }),
  ]);
  const ids = waiting.jobs.map((job) => job.job_id).slice(0, 100);
  const reasons = new Map<string, string>();
  if (ids.length > 0) {
    const list = await post("/queue/jobs/reasons", { body: { jobs: ids }, signal });
    for (const { job_id, reason } of list.jobs) reasons.set(job_id, reason.code);
  }
  return { jobs: [...running.jobs, ...waiting.jobs], ended: ended.jobs.filter((job) => job.started_at), reasons };
}

function verdict(node: Schemas["NodeStatus"], high: readonly { name: string; value: string; bound: string; lack: boolean }[], quietMax: number): string {
  if (node.load_ignored) return "The policy ignores the load: jobs start at any time.";
  if (node.stale) return "The measurements are too old to be trusted: nothing is admitted.";
  if (node.state === "QUIET") return `Yes: busy is ${node.busy.toFixed(1)}, and stays at ${quietMax} or below.`;
  const worst = high.slice(0, 2).map((one) => `${one.name} ${one.value} (at ${one.lack ? "least" : "most"} ${one.bound})`);
  const because = worst.length ? `: ${worst.join(", ")}` : node.busy <= quietMax ? ", but it has not been calm for long enough" : "";
  return `No: busy is ${node.busy.toFixed(1)}, quiet is ${quietMax} or below${because}.`;
}

function NothingRuns({ waiting, high }: { waiting: number; high: boolean }) {
  return (
    <div class="nothing">
      <p>Nothing runs.</p>
      <p class="muted">
        {waiting === 0 ? "Nothing waits either." : high ? "The jobs that wait need a quieter machine, or a worker." : `${plural(waiting, "job")} may start with the next pass.`} {waiting > 0 && <a href={jobsHref("state:waiting")}>See why each waits</a>}
      </p>
    </div>
  );
}

function RecentFailures({ jobs }: { jobs: readonly JobView[] }) {
  if (jobs.length === 0) return null;
  return (
    <Card title="Last failures" flush beside={<a href={href("/wall")}>Wall</a>}>
      <ul class="rows">
        {jobs.slice(0, 5).map((job) => (
          <li key={job.job_id}>
            <StateBadge state={job.state} quarantined={job.quarantined} />
            <a href={jobHref(job.job_id)} class="cut">
              {jobLabel(job)} <span class="muted">{shortId(job.job_id)}</span>
            </a>
            <span class="cut muted">{job.last_error?.split("\n")[0]}</span>
            <span class="muted end">
              <Age at={job.ended_at} />
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}
