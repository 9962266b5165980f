// The processes that run jobs: what they serve, what they have in hand, and how their pools do.
import { type Schemas, get } from "../api";
import { commands } from "../commands";
import { Age } from "../components/Age";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { Page } from "../components/Page";
import { jobHref, shortId } from "../links";
import { useResource } from "../resource";
import { href } from "../router";
import { instant, now } from "../time";
import { count, percent, plural } from "../units";

type Worker = Schemas["WorkerView"];

/** A worker tells about itself every few seconds; one that was silent for this long may be gone. */
const SILENT_MS = 30_000;

export function WorkersScreen() {
  const list = useResource("workers", (signal) => get("/workers", { signal }), { every: 3000, keep: true });
  const workers = [...(list.data?.workers ?? [])].sort((a, b) => (a.addon_id < b.addon_id ? -1 : a.addon_id > b.addon_id ? 1 : a.instance_id < b.instance_id ? -1 : 1));
  const running = workers.reduce((sum, worker) => sum + (worker.jobs?.length ?? 0), 0);
  const slots = workers.reduce((sum, worker) => sum + (worker.slots ?? 0), 0);
  return (
    <Page title="Workers" about={workers.length > 0 && `${plural(workers.length, "worker")}, ${count(running)} of ${plural(slots, "slot")} in use`} copy={{ call: { path: "/workers" }, cli: commands.workers() }}>
      {list.error && <ErrorNote error={list.error} retry={list.refresh} />}
      {workers.length === 0 && !list.loading && !list.error && (
        <EmptyState title="No worker is connected" commands={[commands.work(), commands.serveRunner()]}>
          Jobs wait until a worker serves their type. A worker is any program; these start one.
        </EmptyState>
      )}
      <ul class="workers">
        {workers.map((worker) => (
          <li key={worker.instance_id} class="card worker">
            <WorkerCard worker={worker} />
          </li>
        ))}
      </ul>
    </Page>
  );
}

function WorkerCard({ worker }: { worker: Worker }) {
  const seen = instant(worker.seen_at);
  const silent = seen !== null && now.value - seen > SILENT_MS;
  const jobs = worker.jobs ?? [];
  return (
    <>
      <header>
        <h2>{worker.program || worker.addon_id}</h2>
        <span class={silent ? "badge state-failed" : worker.draining ? "badge state-warn" : "badge state-done"}>{silent ? "silent" : worker.draining ? "draining" : "live"}</span>
        <span class="push muted">
          seen <Age at={worker.seen_at} />
        </span>
      </header>
      <div class="card-body">
        <dl class="facts">
          <div>
            <dt>Serves</dt>
            <dd>
              {worker.addon_id}
              {": "}
              {worker.job_types?.length ? worker.job_types.map((type) => <span key={type} class="tag">{type}</span>) : "all types"}
            </dd>
          </div>
          <div>
            <dt>Slots</dt>
            <dd>
              <Slots used={jobs.length} slots={worker.slots ?? 0} />
            </dd>
          </div>
          <div>
            <dt>Where</dt>
            <dd>
              {worker.node_id ? <a href={href("/machines")}>{worker.node_id}</a> : <span class="muted">unknown</span>}
              {worker.pid && <span class="muted">, pid {worker.pid}</span>}
            </dd>
          </div>
          {worker.pool && <Pool pool={worker.pool} />}
          {jobs.length > 0 && (
            <div>
              <dt>Runs</dt>
              <dd>
                {jobs.slice(0, 6).map((job) => (
                  <a key={job} class="tag" href={jobHref(job)}>
                    {shortId(job)}
                  </a>
                ))}
                {jobs.length > 6 && <span class="muted"> and {jobs.length - 6} more</span>}
              </dd>
            </div>
          )}
        </dl>
      </div>
    </>
  );
}

function Slots({ used, slots }: { used: number; slots: number }) {
  if (slots > 24) return <span class="num">{`${used} of ${slots} in use`}</span>;
  return (
    <span class="slots" title={`${used} of ${slots} in use`}>
      <span aria-hidden="true">
        {Array.from({ length: Math.max(slots, used) }, (_, index) => (
          <span key={index} class={index < used ? "slot used" : "slot"} />
        ))}
      </span>
      <span class="num">
        {used} of {slots}
      </span>
    </span>
  );
}

/** What the worker's work-stealing pool did since its start. */
function Pool({ pool }: { pool: Schemas["PoolReport"] }) {
  const threads = pool.threads ?? 0;
  const asleep = pool.sleeping ?? 0;
  const tasks = pool.tasks ?? 0;
  return (
    <div>
      <dt>Pool</dt>
      <dd class="pool">
        <span title="Threads that work, of all">
          <strong class="num">{threads - asleep}</strong> of {plural(threads, "thread")} awake
        </span>
        <span title="Tasks that were run since the start">
          <strong class="num">{count(tasks)}</strong> executed
        </span>
        <span title="Forks that another thread took">
          <strong class="num">{count(pool.steals ?? 0)}</strong> stolen{tasks > 0 && <span class="muted"> ({percent((pool.steals ?? 0) / tasks, 1)})</span>}
        </span>
        <span title="Times that a thread was woken">
          <strong class="num">{count(pool.wakes ?? 0)}</strong> {pool.wakes === 1 ? "wake-up" : "wake-ups"}
        </span>
      </dd>
    </div>
  );
}
