// The capacity that is given away: each live lease with its holder, its cost and the time that is left.
import { useState } from "preact/hooks";
import { type Schemas, get, post } from "../api";
import { commands } from "../commands";
import { Age } from "../components/Age";
import { confirm } from "../components/Confirm";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { Page } from "../components/Page";
import { Table } from "../components/Table";
import { complain, say } from "../components/Toast";
import { jobHref, shortId } from "../links";
import { leaseLeft } from "../pure/leases";
import { useResource } from "../resource";
import { query, setQuery } from "../router";
import { can } from "../session";
import { now, span } from "../time";
import { count, plural } from "../units";

type Lease = Schemas["LeaseView"];

const PAGE = 100;

export function LeasesScreen() {
  const addon = query.value.get("addon") ?? "";
  const [after, setAfter] = useState<string[]>([]);
  const from = after[after.length - 1];
  const list = useResource(
    `leases ${addon} ${from ?? ""}`,
    (signal) => get("/lease", { query: { limit: PAGE, ...(addon ? { addon_id: addon } : {}), ...(from ? { after: from } : {}) }, signal }),
    { live: { event: ["LEASE_GRANTED", "LEASE_RELEASED", "LEASE_EXPIRED", "LEASE_REVOKED"] }, every: 5000, keep: true },
  );
  const leases = list.data?.leases ?? [];
  const units = leases.reduce((sum, lease) => sum + lease.cost_units, 0);

  const revoke = async (lease: Lease) => {
    const jobs = lease.jobs?.length ?? 0;
    const agreed = await confirm({
      title: "Revoke this lease?",
      body: <p>{jobs > 0 ? `Its holder is told to stop ${plural(jobs, "job")}, which wait again and count a rescue.` : "Its holder is told to stop."} This cannot be undone.</p>,
      action: "Revoke the lease",
      danger: true,
      reason: true,
    });
    if (!agreed) return;
    await post("/lease/{lease_id}/revoke", { path: { lease_id: lease.lease_id }, body: { reason: agreed.reason } });
    say("Revoked the lease.");
    list.refresh();
  };

  return (
    <Page
      title="Leases"
      about={leases.length > 0 && `${plural(leases.length, "live lease")}${list.data?.next ? " on this page" : ""}, ${plural(units, "unit")}`}
      copy={{ call: { path: "/lease", query: addon ? { addon_id: addon } : {} }, cli: addon ? null : commands.leases() }}
      actions={
        <label class="inline-field">
          <span class="hidden-text">Only of this addon</span>
          <input
            type="search"
            data-search
            placeholder="Addon"
            value={addon}
            onChange={(event) => {
              setAfter([]);
              setQuery({ addon: event.currentTarget.value.trim() || undefined }, { replace: true });
            }}
          />
        </label>
      }
    >
      {list.error && <ErrorNote error={list.error} retry={list.refresh} />}
      <Table
        label="Leases"
        keys
        count={leases.length}
        row={(index) => leases[index]}
        rowKey={(lease) => lease.lease_id}
        {...(leases.some((lease) => lease.current ?? lease.jobs?.[0]) ? { open: (lease: Lease) => jobHref(lease.current ?? lease.jobs?.[0] ?? "") } : {})}
        columns={[
          { key: "id", title: "Lease", track: "7rem", from: "medium", cell: (lease) => <code title={lease.lease_id}>{shortId(lease.lease_id)}</code> },
          { key: "addon", title: "Addon", track: "minmax(6rem, 1fr)", cell: (lease) => <span class="cut">{lease.addon_id}</span> },
          { key: "type", title: "Type", track: "minmax(6rem, 1fr)", from: "medium", cell: (lease) => <span class="cut">{lease.job_type ?? "–"}</span> },
          {
            key: "jobs",
            title: "Job",
            track: "minmax(8rem, 1.4fr)",
            cell: (lease) => {
              const job = lease.current ?? lease.jobs?.[0];
              const more = (lease.jobs?.length ?? 0) - 1;
              return job ? (
                <>
                  <a href={jobHref(job)}>{shortId(job)}</a> {more > 0 && <span class="muted">and {count(more)} more</span>}
                </>
              ) : (
                <span class="muted">capacity only</span>
              );
            },
          },
          { key: "cost", title: "Units", track: "4.5rem", end: true, cell: (lease) => lease.cost_units },
          { key: "granted", title: "Granted", track: "7.5rem", from: "medium", cell: (lease) => <Age at={lease.granted_at} /> },
          {
            key: "left",
            title: "Ends unless renewed, in",
            track: "minmax(12rem, 1fr)",
            from: "medium",
            cell: (lease) => {
              const left = leaseLeft(lease, now.value);
              return (
                <span class="share">
                  <span class={left.part < 0.25 ? "share-track short" : "share-track"} aria-hidden="true">
                    <span style={{ width: `${left.part * 100}%` }} />
                  </span>
                  <span class="num">{left.seconds > 0 ? span(left.seconds) : "now"}</span>
                </span>
              );
            },
          },
          { key: "node", title: "Machine", track: "minmax(5rem, 0.7fr)", from: "wide", cell: (lease) => <span class="cut">{lease.node_id}</span> },
          { key: "pids", title: "Processes", track: "7rem", from: "wide", cell: (lease) => <span class="cut num">{lease.pids?.join(", ") || "–"}</span> },
          ...(can("cancel")
            ? [
                {
                  key: "revoke",
                  title: <span class="hidden-text">Action</span>,
                  track: "6rem",
                  end: true,
                  cell: (lease: Lease) => (
                    <button type="button" class="small danger" onClick={() => revoke(lease).catch(complain)}>
                      Revoke <span class="hidden-text">lease {shortId(lease.lease_id)}</span>
                    </button>
                  ),
                },
              ]
            : []),
        ]}
        empty={
          !list.loading && (
            <EmptyState title={addon ? `${addon} holds no lease` : "No lease is live"} commands={[commands.requestLease(), commands.runLong()]}>
              Each running job holds a lease on a part of the capacity.
            </EmptyState>
          )
        }
      />
      {(after.length > 0 || list.data?.next) && (
        <div class="pager">
          <button type="button" disabled={after.length === 0} onClick={() => setAfter(after.slice(0, -1))}>
            Previous
          </button>
          <button type="button" disabled={!list.data?.next} onClick={() => list.data?.next && setAfter([...after, list.data.next])}>
            Next
          </button>
        </div>
      )}
    </Page>
  );
}
