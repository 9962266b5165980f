// Actions on many jobs: the list of them, and the page of one with its progress.
import { type BulkView, list, over, read, stop } from "../bulk";
import { Age, Span } from "../components/Age";
import { Bar } from "../components/Bar";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { Page } from "../components/Page";
import { Table } from "../components/Table";
import { complain } from "../components/Toast";
import { cliFilter, filterOfQuery } from "../filter";
import { jobHref, jobsHref, shortId } from "../links";
import { useResource } from "../resource";
import { href } from "../router";
import { can } from "../session";
import { count, plural } from "../units";

const WORDS: Record<BulkView["state"], string> = { READY: "not started", RUNNING: "running", ENDED: "ended", STOPPED: "stopped" };
const title = ({ action, count }: BulkView) => `${action === "cancel" ? "Cancel" : "Retry"} ${plural(count, "job")}`;
const filterOf = (bulk: BulkView): string => cliFilter(filterOfQuery(bulk.query)).join(" ");

function parts(bulk: BulkView) {
  return [
    { value: bulk.done, label: "done", tone: "done" as const },
    { value: bulk.skipped, label: "skipped", tone: "queued" as const },
    { value: bulk.failed, label: "refused", tone: "failed" as const },
  ];
}

export function BulkScreen({ id }: { id: string }) {
  const bulk = useResource(`bulk ${id}`, (signal) => read(id, signal), { every: 700 });
  const view = bulk.data;
  if (!view) return <Page title="Bulk action">{bulk.error && <ErrorNote error={bulk.error} retry={bulk.refresh} />}</Page>;
  const filter = filterOf(view);
  return (
    <Page
      title={title(view)}
      beside={<span class="badge">{WORDS[view.state]}</span>}
      about={
        <>
          By {view.by}, <Age at={view.started_at ?? view.created_at} />
          {view.reason && <>: {view.reason}</>}. Jobs that matched <a href={jobsHref(filter)}>{filter || "any filter"}</a> when it was made.
        </>
      }
      copy={{ call: { path: `/queue/bulk/${id}` }, cli: null }}
      actions={
        view.state === "RUNNING" && can("cancel") ? (
          <button type="button" onClick={() => stop(id).then(bulk.refresh, complain)}>
            Stop the action
          </button>
        ) : undefined
      }
    >
      {bulk.error && <ErrorNote error={bulk.error} />}
      <section class="card">
        <div class="card-body bulk-progress" aria-live="polite">
          <Bar parts={parts(view)} total={view.count} label="Progress" />
          <dl class="figures">
            <Figure label="over" value={`${count(over(view))} of ${count(view.count)}`} />
            <Figure label="done" value={count(view.done)} />
            <Figure label="skipped: had changed" value={count(view.skipped)} />
            <Figure label="refused" value={count(view.failed)} />
          </dl>
          {view.started_at && (
            <p class="muted">
              {view.ended_at ? "Took" : "For"} <Span from={view.started_at} to={view.ended_at} />
            </p>
          )}
        </div>
      </section>
      {view.failures.length > 0 && (
        <section class="card">
          <header>
            <h2>Refused</h2>
            {view.failed > view.failures.length && <span class="muted">the first {view.failures.length}</span>}
          </header>
          <Table
            label="Refused jobs"
            count={view.failures.length}
            row={(index) => view.failures[index]}
            rowKey={(one) => one.job_id}
            columns={[
              { key: "id", title: "Job", track: "8rem", cell: (one) => <a href={jobHref(one.job_id)}><code>{shortId(one.job_id)}</code></a> },
              { key: "error", title: "Why", track: "minmax(10rem, 1fr)", cell: (one) => one.error.message },
            ]}
          />
        </section>
      )}
    </Page>
  );
}

function Figure({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dt class="muted">{label}</dt>
      <dd class="num">{value}</dd>
    </div>
  );
}

export function BulkListScreen() {
  const all = useResource("bulk", (signal) => list(signal), { every: 2000 });
  const actions = all.data?.actions ?? [];
  return (
    <Page title="Bulk actions" about="Actions on all jobs that a filter finds, of the last day." copy={{ call: { path: "/queue/bulk" }, cli: null }}>
      {all.error && <ErrorNote error={all.error} retry={all.refresh} />}
      <Table
        label="Bulk actions"
        keys
        count={actions.length}
        row={(index) => actions[index]}
        rowKey={(one) => one.bulk_id}
        open={(one) => href(`/bulk/${one.bulk_id}`)}
        columns={[
          { key: "what", title: "Action", track: "minmax(9rem, 1fr)", cell: (one) => <a href={href(`/bulk/${one.bulk_id}`)}>{title(one)}</a> },
          { key: "filter", title: "Filter", track: "minmax(8rem, 2fr)", from: "medium", cell: (one) => <code class="cut">{filterOf(one)}</code> },
          { key: "state", title: "State", track: "7rem", cell: (one) => WORDS[one.state] },
          { key: "progress", title: "Progress", track: "8rem", from: "medium", cell: (one) => <Bar thin parts={parts(one)} total={one.count} label="Progress" /> },
          { key: "by", title: "By", track: "minmax(6rem, 1fr)", from: "wide", cell: (one) => <span class="cut">{one.by}</span> },
          { key: "at", title: "When", track: "7.5rem", end: true, cell: (one) => <Age at={one.created_at} /> },
        ]}
        empty={
          !all.loading &&
          !all.error && (
            <EmptyState title="No bulk actions">
              Filter the <a href={href("/jobs")}>list of jobs</a>, select all that match, and cancel or retry them.
            </EmptyState>
          )
        }
      />
    </Page>
  );
}
