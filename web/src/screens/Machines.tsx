// The machines that share the store: how busy each is, what it may run, and when it was heard of last.
import { type Schemas, get } from "../api";
import { commands } from "../commands";
import { Age } from "../components/Age";
import { CapacityBar } from "../components/CapacityBar";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { Page } from "../components/Page";
import { QuietBadge } from "../components/QuietBadge";
import { useResource } from "../resource";
import { href } from "../router";
import { plural } from "../units";

type Node = Schemas["NodeStatus"];

export function MachinesScreen() {
  const status = useResource("status", (signal) => get("/status", { signal }), { live: { event: ["LOAD_STATE"] }, every: 3000, keep: true });
  const nodes = status.data?.nodes ?? [];
  const silent = nodes.filter((node) => node.silent).length;
  return (
    <Page
      title="Machines"
      about={nodes.length > 0 && `${plural(nodes.length, "machine")} ${nodes.length === 1 ? "uses" : "share"} this store${silent > 0 ? `, ${silent} of them silent` : ""}`}
      copy={{ call: { path: "/status" }, cli: commands.status() }}
    >
      {status.error && <ErrorNote error={status.error} retry={status.refresh} />}
      {nodes.length === 0 && !status.loading && !status.error && (
        <EmptyState title="No machine has described itself yet" commands={[commands.serveMachine()]}>
          Each daemon that opens the same PostgreSQL is a machine here.
        </EmptyState>
      )}
      <ul class="machines">
        {nodes.map((node, index) => (
          <li key={node.node_id} class={node.silent ? "card machine silent" : "card machine"}>
            <Machine node={node} answers={index === 0} />
          </li>
        ))}
      </ul>
      {nodes.length === 1 && (
        <p class="muted">
          More machines can share the work: start <code>{commands.serveMachine()}</code> on each.
        </p>
      )}
    </Page>
  );
}

function Machine({ node, answers }: { node: Node; answers: boolean }) {
  return (
    <>
      <header>
        <h2>{node.node_id}</h2>
        {node.silent ? <span class="badge state-failed">silent</span> : <QuietBadge state={node.state} />}
        {answers && <span class="tag" title="This page comes from it">answers you</span>}
        {node.labels?.map((label) => (
          <span key={label} class="tag">
            {label}
          </span>
        ))}
        <span class="push muted">{node.version}</span>
      </header>
      <div class="card-body">
        {node.silent && (
          <p class="note warn">
            It was not heard of since <Age at={node.last_seen} />: it is off, or does not reach the database. These numbers are old.
          </p>
        )}
        {node.stale && !node.silent && <p class="note warn">Its measurements are too old to be trusted: it admits nothing.</p>}
        <CapacityBar capacity={node.capacity} used={node.used} reserved={node.reserved} legend />
        <dl class="facts">
          <div>
            <dt>Busy</dt>
            <dd class="num">{node.load_ignored ? "ignored by its policy" : `${node.busy.toFixed(1)} of 10`}</dd>
          </div>
          <div>
            <dt>Leases</dt>
            <dd>{answers ? <a href={href("/leases")}>{node.active_leases}</a> : node.active_leases}</dd>
          </div>
          <div>
            <dt>In this state</dt>
            <dd>
              since <Age at={node.since} />
            </dd>
          </div>
          {node.last_seen && (
            <div>
              <dt>Heard of</dt>
              <dd>
                <Age at={node.last_seen} />
              </dd>
            </div>
          )}
        </dl>
      </div>
    </>
  );
}
