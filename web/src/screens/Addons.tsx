// Who submits jobs: how much waits and runs for each addon, its share and caps, how it did, and its pause.
import { callToml, get, post } from "../api";
import { commands } from "../commands";
import { Age } from "../components/Age";
import { confirm } from "../components/Confirm";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { Page } from "../components/Page";
import { Table } from "../components/Table";
import { complain, say } from "../components/Toast";
import { jobsHref } from "../links";
import { addonRows, type AddonRow } from "../pure/addons";
import { useResource } from "../resource";
import { can } from "../session";
import { span } from "../time";
import { count, percent } from "../units";

export function AddonsScreen() {
  const all = useResource(
    "addons",
    async (signal) => {
      const [status, history, pauses, policy] = await Promise.all([get("/status", { signal }), get("/history", { signal }), get("/queue/pauses", { signal }), callToml("get", "/policy", { signal })]);
      return { rows: addonRows(status, history.history, pauses.pauses, policy), pauses: pauses.pauses };
    },
    { live: {}, every: 10_000, keep: true, gap: 2000 },
  );
  const rows = all.data?.rows ?? [];
  const types = (all.data?.pauses ?? []).filter((pause) => pause.job_type);

  const pause = async (row: AddonRow) => {
    if (row.paused) {
      await post("/queue/resume", { body: { addon_id: row.addon } });
      say(`Resumed ${row.addon}.`);
    } else {
      const agreed = await confirm({ title: `Pause ${row.addon}?`, body: <p>Its {count(row.queued)} waiting jobs stay where they are, and no further job of it starts. Running jobs go on.</p>, action: `Pause ${row.addon}`, reason: true });
      if (!agreed) return;
      await post("/queue/pause", { body: { addon_id: row.addon, reason: agreed.reason } });
      say(`Paused ${row.addon}.`);
    }
    all.refresh();
  };

  return (
    <Page title="Addons" about="Who submits jobs. Each gets its share of the capacity by its weight." copy={{ call: { path: "/status" }, cli: commands.status() }}>
      {all.error && <ErrorNote error={all.error} retry={all.refresh} />}
      <Table
        label="Addons"
        keys
        count={rows.length}
        row={(index) => rows[index]}
        rowKey={(row) => row.addon}
        open={(row) => jobsHref(`addon:${row.addon}`)}
        columns={[
          {
            key: "addon",
            title: "Addon",
            track: "minmax(8rem, 2fr)",
            cell: (row) => (
              <>
                <a class="in-text" href={jobsHref(`addon:${row.addon}`)}>{row.addon}</a> {row.paused && <span class="badge state-warn">paused</span>}
                {row.paused && row.pauseReason && <div class="hint cut">{row.pauseReason}</div>}
              </>
            ),
          },
          { key: "queued", title: "Waiting", track: "5.5rem", end: true, cell: (row) => <a href={jobsHref(`addon:${row.addon} state:waiting`)}>{count(row.queued + row.dispatching)}</a> },
          { key: "running", title: "Running", track: "5.5rem", end: true, cell: (row) => <a href={jobsHref(`addon:${row.addon} state:running`)}>{count(row.running)}</a> },
          {
            key: "share",
            title: "Share",
            track: "minmax(8rem, 1.4fr)",
            from: "medium",
            cell: (row) => (
              <span class="share" title={`weight ${row.weight}`}>
                <span class="share-track" aria-hidden="true">
                  <span style={{ width: `${row.share * 100}%` }} />
                </span>
                <span class="num">{percent(row.share)}</span>
                <span class="muted">weight {row.weight}</span>
              </span>
            ),
          },
          { key: "caps", title: "Lease cap", track: "6.5rem", end: true, from: "wide", cell: (row) => (row.leases === undefined ? <span class="muted">default</span> : count(row.leases)) },
          { key: "wait", title: "Mean wait", track: "7rem", end: true, from: "medium", cell: (row) => (row.wait === undefined ? <span class="muted">–</span> : span(row.wait)) },
          { key: "ended", title: "Ended", track: "6rem", end: true, from: "medium", cell: (row) => count(row.ended) },
          { key: "ok", title: "Succeeded", track: "6.5rem", end: true, from: "wide", cell: (row) => (row.success === undefined ? <span class="muted">–</span> : <span class={row.success < 0.9 ? "bad-number" : undefined}>{percent(row.success, row.success > 0.99 && row.success < 1 ? 1 : 0)}</span>) },
          ...(can("admin")
            ? [
                {
                  key: "pause",
                  title: <span class="hidden-text">Action</span>,
                  track: "7rem",
                  end: true,
                  cell: (row: AddonRow) => (
                    <button type="button" class="small" onClick={() => pause(row).catch(complain)}>
                      {row.paused ? "Resume" : "Pause"} <span class="hidden-text">{row.addon}</span>
                    </button>
                  ),
                },
              ]
            : []),
        ]}
        empty={
          !all.loading && (
            <EmptyState title="No addon has submitted a job yet" commands={[commands.submit()]}>
              An addon is whoever submits: a program, a service, a person. Its name comes with its first job.
            </EmptyState>
          )
        }
      />
      {types.length > 0 && (
        <section class="paused-types">
          <h2>Paused types</h2>
          <ul class="rows">
            {types.map((one) => (
              <li key={`${one.addon_id} ${one.job_type}`}>
                <span>
                  {one.addon_id} / {one.job_type}
                </span>
                <span class="muted cut">{one.reason}</span>
                <span class="muted">
                  since <Age at={one.since} />
                </span>
                {can("admin") && (
                  <button
                    type="button"
                    class="small end"
                    onClick={() =>
                      post("/queue/resume", { body: { addon_id: one.addon_id, job_type: one.job_type ?? null } })
                        .then(all.refresh)
                        .catch(complain)
                    }
                  >
                    Resume
                  </button>
                )}
              </li>
            ))}
          </ul>
        </section>
      )}
    </Page>
  );
}
