// The list of jobs: states at the side, the filter above, and actions on what is selected or on all that match.
import { useMemo, useRef, useState } from "preact/hooks";
import { get, post } from "../api";
import { type BulkView, each, prepare, start } from "../bulk";
import { commands } from "../commands";
import { Age, Span } from "../components/Age";
import { confirm } from "../components/Confirm";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { FilterBox } from "../components/FilterBox";
import { Icon } from "../components/Icon";
import { JobNote } from "../components/JobNote";
import { Page } from "../components/Page";
import { StateBadge } from "../components/StateBadge";
import { StateList, counted } from "../components/StateList";
import { Table } from "../components/Table";
import { complain, say } from "../components/Toast";
import { STATES, type JobFilter, apiQuery, cliFilter, parseFilter } from "../filter";
import type { JobRow } from "../jobPages";
import { useCommands } from "../keys";
import { jobHref, shortId } from "../links";
import { useResource } from "../resource";
import { go, href, query, setQuery } from "../router";
import { can } from "../session";
import { plural } from "../units";
import { knownNames, useJobs } from "../useJobs";

type Action = BulkView["action"];
const DONE_WORD: Record<Action, string> = { cancel: "cancelled", retry: "queued again" };
const verb = (action: Action) => (action === "cancel" ? "Cancel" : "Retry");

/** Which states an action does something to. */
const acts = (action: Action, row: JobRow): boolean =>
  action === "cancel" ? row.state === "QUEUED" || row.state === "DISPATCHING" || (row.state === "RUNNING" && !row.cancel_requested) : row.state === "FAILED" || row.state === "CANCELED";

export function JobsScreen() {
  const text = query.value.get("q") ?? "";
  const { filter, problems } = useMemo(() => parseFilter(text), [text]);
  const jobs = useJobs(filter);
  const status = useResource("status", (signal) => get("/status", { signal }), { live: {}, when: (event) => event.state !== undefined && event.state !== null, gap: 2000 });
  const { rows, above, next } = jobs.pages;
  const filtered = text.trim() !== "";

  // What is selected: some ids, or everything that matches. Another filter is another selection.
  const [selection, setSelection] = useState<{ of: string; ids: ReadonlySet<string>; all: boolean }>({ of: text, ids: new Set(), all: false });
  const selected = selection.of === text ? selection : { of: text, ids: new Set<string>(), all: false };
  const anchor = useRef(0);
  const none = () => setSelection({ of: text, ids: new Set(), all: false });
  const toggle = (row: JobRow, index: number, range: boolean) => {
    const ids = new Set(selected.all ? rows.map(({ job_id }) => job_id) : selected.ids);
    const on = selected.all ? false : !ids.has(row.job_id);
    const [from, to] = range ? [Math.min(anchor.current, index), Math.max(anchor.current, index)] : [index, index];
    for (const one of rows.slice(from, to + 1)) {
      if (on) ids.add(one.job_id);
      else ids.delete(one.job_id);
    }
    anchor.current = index;
    setSelection({ of: text, ids, all: false });
  };
  const many = selected.all || selected.ids.size > 0;
  const mayAct = can("cancel");

  useCommands([{ keys: "Escape", label: "Select nothing", group: "Jobs", run: none }]);

  const known = useMemo(() => knownNames(rows, status.data), [rows.length, status.data]);
  const total = filter.state.length || !filtered ? knownTotal(status.data, filter) : null;
  return (
    <Page
      title="Jobs"
      class="full jobs"
      copy={{ call: { path: "/queue/jobs/recent", query: apiQuery(filter) }, cli: commands.list(filter) }}
      actions={
        <a class="button ghost" href={href("/bulk")}>
          Bulk actions
        </a>
      }
    >
      <div class="jobs-grid">
        <StateList text={text} filter={filter} status={status.data} />
        <div class="jobs-main">
          <FilterBox value={text} onChange={(q) => setQuery({ q }, { replace: true })} known={known} problems={problems} />
          {jobs.error && <ErrorNote error={jobs.error} retry={jobs.refresh} />}
          {above.length > 0 && (
            <button
              type="button"
              class="new-above"
              onClick={() => {
                jobs.showAbove();
                document.querySelector(".jobs .table.fill")?.scrollTo({ top: 0 });
              }}
            >
              <Icon name="down" size={14} /> {plural(above.length, "new job")} above
            </button>
          )}
          <Table
            label="Jobs"
            fill
            keys
            rowHeight={42}
            count={rows.length + (next === null ? 0 : 40)}
            row={(index) => rows[index]}
            rowKey={(row) => row.job_id}
            open={(row) => jobHref(row.job_id)}
            onRange={jobs.onRange}
            onTop={jobs.atTop}
            {...(mayAct
              ? {
                  selection: {
                    has: (row: JobRow) => selected.all || selected.ids.has(row.job_id),
                    toggle,
                    all: selected.all ? ("all" as const) : selected.ids.size ? ("some" as const) : ("none" as const),
                    toggleAll: () => setSelection({ of: text, ids: new Set(), all: !selected.all && selected.ids.size === 0 }),
                  },
                }
              : {})}
            columns={[
              { key: "state", title: "State", track: "8.6rem", cell: (row) => <StateBadge state={row.state} quarantined={row.quarantined} /> },
              {
                key: "job",
                title: "Job",
                track: "minmax(9rem, 1.2fr)",
                cell: (row) => (
                  <span class="job-cell">
                    <a class="cut job-name" href={jobHref(row.job_id)}>
                      {row.job_type}
                    </a>
                    <span class="cut muted job-under">
                      {row.addon_id}
                      {row.priority !== "NORMAL" && ` · ${row.priority.toLowerCase()}`}
                      {(row.tags ?? []).map((tag) => (
                        <span key={tag} class="tag">
                          {tag}
                        </span>
                      ))}
                    </span>
                  </span>
                ),
              },
              { key: "note", title: "Now", track: "minmax(8rem, 2fr)", from: "medium", cell: (row) => <JobNote job={row} reason={jobs.reasons.get(row.job_id)} /> },
              { key: "time", title: "Took", track: "6.5rem", end: true, from: "medium", cell: (row) => <RowTime row={row} /> },
              { key: "created", title: "Submitted", track: "7.5rem", end: true, cell: (row) => <Age at={row.created_at} /> },
              { key: "id", title: "Id", track: "6.5rem", end: true, from: "wide", cell: (row) => <code class="muted" title={row.job_id}>{shortId(row.job_id)}</code> },
            ]}
            empty={
              jobs.loading ? null : filtered ? (
                <EmptyState title="No job matches" commands={[]}>
                  {problems.length ? problems.join("; ") : "The filter is what keeps them away:"} <a href={href("/jobs")}>show all jobs</a>
                </EmptyState>
              ) : (
                <EmptyState title="No jobs yet" commands={[commands.run(), commands.submitPayload()]}>
                  Run a command when the machine is quiet, or submit a job for a worker:
                </EmptyState>
              )
            }
          />
          {many && (
            <section class="bulk-bar" aria-label="Actions on the selection">
              <strong>{selected.all ? `All${total === null ? "" : ` ${plural(total, "job")}`} that match` : `${plural(selected.ids.size, "job")} selected`}</strong>
              {!selected.all && (
                <button type="button" class="ghost small" onClick={() => setSelection({ of: text, ids: new Set(), all: true })}>
                  Select all that match
                </button>
              )}
              <span class="push" />
              {(["retry", "cancel"] as const).map((action) => (
                <button
                  key={action}
                  type="button"
                  class={action === "cancel" ? "danger" : ""}
                  onClick={() => (selected.all ? onAll(action, filter) : onSome(action, rows.filter((row) => selected.ids.has(row.job_id)), none)).catch(complain)}
                >
                  <Icon name={action === "cancel" ? "cancel" : "retry"} /> {verb(action)}
                </button>
              ))}
              <button type="button" class="ghost small" aria-label="Select nothing" onClick={none}>
                <Icon name="close" />
              </button>
            </section>
          )}
        </div>
      </div>
    </Page>
  );
}

/** How many jobs a filter of states, or of states and an addon, finds. */
function knownTotal(status: Parameters<typeof counted>[0], filter: JobFilter): number | null {
  const counts = (filter.state.length ? filter.state : STATES).map((state) => counted(status, filter, state));
  return counts.every((one) => one !== null) ? counts.reduce<number>((sum, one) => sum + (one ?? 0), 0) : null;
}

function RowTime({ row }: { row: JobRow }) {
  const waits = row.state === "QUEUED" || row.state === "DISPATCHING";
  if (waits || !row.started_at) return <span class="muted">–</span>;
  return <Span from={row.started_at} to={row.ended_at} />;
}

/** Asks with the exact number, starts the action, and goes to its page. */
async function onAll(action: Action, filter: JobFilter): Promise<void> {
  if (filter.id) throw new Error("An id can not be part of an action on all that match: select the jobs one by one.");
  const bulk = await prepare(action, filter);
  if (bulk.count === 0) {
    say(`Nothing to ${action}: no job that matches is in a state for it.`);
    return;
  }
  const words = cliFilter(filter);
  const answer = await confirm({
    title: `${verb(action)} ${plural(bulk.count, "job")}?`,
    body: (
      <>
        <p>
          {words.length ? (
            <>
              Those that match <code>{words.join(" ")}</code> now
            </>
          ) : (
            "All jobs that there are now"
          )}
          . Jobs that are submitted later are not affected.
        </p>
        <p class="muted">{action === "cancel" ? "Waiting jobs end at once; running ones are asked to stop. It cannot be undone, but ended jobs can be retried." : "Each begins anew with its first attempt."}</p>
      </>
    ),
    action: `${verb(action)} ${plural(bulk.count, "job")}`,
    danger: action === "cancel",
    ...(action === "cancel" && bulk.count >= 1000 ? { typed: String(bulk.count) } : {}),
  });
  if (!answer) return;
  await start(bulk.bulk_id);
  go(href(`/bulk/${bulk.bulk_id}`));
}

/** The same for jobs that were selected one by one. */
async function onSome(action: Action, rows: readonly JobRow[], done: () => void): Promise<void> {
  const fit = rows.filter((row) => acts(action, row));
  if (!fit.length) {
    say(`Nothing to ${action}: none of the selected jobs is in a state for it.`);
    return;
  }
  const rest = rows.length - fit.length;
  const answer = await confirm({
    title: `${verb(action)} ${plural(fit.length, "job")}?`,
    body: rest > 0 && <p class="muted">{plural(rest, "selected job")} {rest === 1 ? "is" : "are"} in a state in which there is nothing to {action}.</p>,
    action: `${verb(action)} ${plural(fit.length, "job")}`,
    danger: action === "cancel",
    reason: true,
  });
  if (!answer) return;
  const { reason } = answer;
  const result = await each(fit.map((row) => row.job_id), async (job_id) => {
    if (action === "cancel") {
      await post("/queue/jobs/{job_id}/cancel", { path: { job_id }, body: { reason } });
      return;
    }
    const { failed } = await post("/queue/jobs/redrive", { body: { job_ids: [job_id], query: null, reason } });
    const [first] = failed;
    if (first) throw new Error(first.error.message);
  });
  if (result.done) say(`${plural(result.done, "job")} ${DONE_WORD[action]}.`);
  if (result.error) complain(result.error);
  done();
}
