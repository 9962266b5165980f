// Why jobs were admitted or not: each decision with the numbers it was made by.
import { type Schemas, get } from "../api";
import { commands } from "../commands";
import { Age } from "../components/Age";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { Page } from "../components/Page";
import { Table } from "../components/Table";
import { jobHref, shortId } from "../links";
import { countCodes, decisionNumbers } from "../pure/decisions";
import { useResource } from "../resource";
import { query, setQuery } from "../router";
import { count } from "../units";
import { width } from "../width";

type Decision = Schemas["Decision"];

export function DecisionsScreen() {
  const only = query.value.get("show") ?? "denied";
  const code = query.value.get("code") ?? "";
  const list = useResource("decisions", (signal) => get("/decisions", { query: { limit: 500 }, signal }), { live: { event: ["ADMITTED", "DENIED"] }, every: 5000, keep: true, gap: 2000 });
  const all = list.data?.decisions ?? [];
  const shown = all.filter((one) => (only === "all" || one.approved === (only === "admitted")) && (!code || one.code === code));
  const codes = countCodes(all);
  return (
    <Page title="Decisions" class="full" about="The last 500 answers to “may this start now?”" copy={{ call: { path: "/decisions", query: { limit: 500 } }, cli: null }}>
      {list.error && <ErrorNote error={list.error} retry={list.refresh} />}
      <div class="filters" role="group" aria-label="Which decisions">
        {[
          ["denied", "Denied"],
          ["admitted", "Admitted"],
          ["all", "All"],
        ].map(([key, label]) => (
          <button key={key} type="button" class="toggle small" aria-pressed={only === key} onClick={() => setQuery({ show: key === "denied" ? undefined : key, code: undefined }, { replace: true })}>
            {label}
          </button>
        ))}
        {only !== "admitted" &&
          codes.map(([name, times]) => (
            <button key={name} type="button" class="toggle small" aria-pressed={code === name} onClick={() => setQuery({ code: code === name ? undefined : name }, { replace: true })}>
              {name.replaceAll("_", " ")} <span class="num muted">{count(times)}</span>
            </button>
          ))}
      </div>
      <Table
        label="Decisions"
        fill
        keys
        rowHeight={width.value === "narrow" ? 66 : 36}
        count={shown.length}
        row={(index) => shown[index]}
        rowKey={(one) => `${one.at} ${one.job_id ?? one.addon_id} ${one.code}`}
        {...(shown.some((one) => one.job_id) ? { open: (one: Decision) => (one.job_id ? jobHref(one.job_id) : "") } : {})}
        columns={[
          {
            key: "verdict",
            title: "Decision",
            track: "6.5rem",
            cell: (one) => <span class={one.approved ? "badge state-done" : "badge state-warn"}>{one.approved ? "admitted" : "denied"}</span>,
          },
          { key: "at", title: "When", track: "7rem", from: "medium", cell: (one) => <Age at={one.at} /> },
          { key: "job", title: "Job", track: "7rem", from: "medium", cell: (one) => (one.job_id ? <a href={jobHref(one.job_id)}>{shortId(one.job_id)}</a> : <span class="muted">lease</span>) },
          { key: "addon", title: "Addon", track: "minmax(5rem, 0.6fr)", from: "medium", cell: (one) => <span class="cut">{one.addon_id}</span> },
          { key: "reason", title: "Why", track: "minmax(10rem, 3fr)", cell: (one) =>
              width.value === "narrow" ? (
                <span class="two-lines">
                  <span class="muted">
                    <Age at={one.at} />, {one.addon_id} {one.job_id && <a href={jobHref(one.job_id)}>{shortId(one.job_id)}</a>}
                  </span>
                  <span class="clamp">{one.reason}</span>
                </span>
              ) : (
                <span class="cut" title={one.reason}>
                  {one.reason}
                </span>
              ),
          },
          { key: "numbers", title: "By which numbers", track: "19rem", from: "wide", cell: (one) => <Numbers of={one} /> },
          { key: "again", title: "Again in", track: "5.5rem", end: true, from: "wide", cell: (one) => (one.retry_after_sec ? `${count(one.retry_after_sec)} s` : <span class="muted">–</span>) },
        ]}
        empty={
          !list.loading && (
            <EmptyState title={all.length === 0 ? "Nothing was decided yet" : "No such decision among the last 500"} commands={all.length === 0 ? [commands.run()] : []}>
              {all.length === 0 ? "A decision is made for each job that could start, and for each request for a lease." : "Choose another filter above."}
            </EmptyState>
          )
        }
      />
    </Page>
  );
}

function Numbers({ of }: { of: Decision }) {
  return (
    <span class="numbers">
      {decisionNumbers(of.numbers).map(({ label, value, tight }) => (
        <span key={label} class={tight ? "number tight" : "number"}>
          <span class="muted">{label}</span> <strong class="num">{value}</strong>
        </span>
      ))}
    </span>
  );
}
