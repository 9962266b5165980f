// Only what fails, for a screen on a wall: read from across the room, nothing to click, nothing that scrolls.
import { get } from "../api";
import { commands } from "../commands";
import { FAILED_LATELY, lastFailure, loadFailed } from "../failures";
import { apiQuery } from "../filter";
import { CopyAs } from "../components/CopyAs";
import { QuietBadge } from "../components/QuietBadge";
import { jobHref, shortId } from "../links";
import { needAttention, troubleText } from "../pure/attention";
import { wallOf } from "../pure/wall";
import { useResource } from "../resource";
import { now, shortSpan, span } from "../time";
import { count } from "../units";
import { useEffect } from "preact/hooks";

export function WallScreen() {
  const status = useResource("wall status", (signal) => get("/status", { signal }), { live: { event: ["LOAD_STATE", "FAILED", "DONE", "QUARANTINED"] }, every: 5000, keep: true });
  const failed = useResource("wall failed", (signal) => loadFailed(signal), { live: { event: ["FAILED", "QUARANTINED", "REDRIVEN"] }, every: 15_000, keep: true, gap: 3000 });
  const open = useResource("wall open", (signal) => get("/queue/jobs", { query: { state: ["QUEUED", "DISPATCHING", "RUNNING"], limit: 500 }, signal }), { every: 10_000, keep: true });
  useEffect(() => {
    document.title = "Wall · jobtree";
  }, []);

  const wall = wallOf(failed.data?.lately ?? [], now.value);
  const lastAt = lastFailure(failed.data);
  const trouble = needAttention(open.data?.jobs ?? [], new Map(), now.value);
  const node = status.data?.nodes[0];
  const unknown = status.error !== undefined || failed.error !== undefined;
  const good = !unknown && failed.data !== undefined && wall.lastHour === 0 && trouble.length === 0;
  return (
    <div class={`wall ${unknown ? "wall-unknown" : good ? "wall-good" : failed.data ? "wall-bad" : ""}`}>
      <header class="wall-head">
        <h1>{unknown ? "The daemon does not answer" : !failed.data ? "…" : good ? "Nothing fails" : wall.lastHour > 0 ? `${count(wall.lastHour)}${failed.data.more ? "+" : ""} failed in the last hour` : `${count(trouble.length)} in trouble`}</h1>
        <div class="wall-side">
          {node && <QuietBadge state={node.state} large />}
          {status.data && (
            <span class="num">
              {count(status.data.jobs.RUNNING ?? 0)} running, {count((status.data.jobs.QUEUED ?? 0) + (status.data.jobs.DISPATCHING ?? 0))} waiting
            </span>
          )}
          <CopyAs call={{ path: "/queue/jobs/recent", query: apiQuery(FAILED_LATELY) }} cli={commands.list(FAILED_LATELY)} />
        </div>
      </header>
      {good && <p class="wall-quiet">{lastAt === undefined ? "No failure is known." : `The last failure was ${span((now.value - lastAt) / 1000)} ago.`}</p>}
      <ul class="wall-list">
        {trouble.slice(0, 4).map(({ job, trouble: what, seconds }) => (
          <li key={job.job_id} class="wall-trouble">
            <a href={jobHref(job.job_id)}>
              <strong>
                {job.addon_id} / {job.job_type}
              </strong>
              <span>{troubleText(what)}</span>
              <span class="num">{shortSpan(Math.abs(seconds))}</span>
            </a>
          </li>
        ))}
        {wall.groups.slice(0, 8).map((group) => (
          <li key={group.key}>
            <a href={jobHref(group.newest)}>
              <strong>
                {group.addon} / {group.type}
              </strong>
              <span class="wall-error">{group.error || "no error was given"}</span>
              <span class="num">
                {group.count > 1 && `${count(group.count)} × `}
                {shortSpan((now.value - group.at) / 1000)} <span class="hidden-text">ago, job {shortId(group.newest)}</span>
              </span>
            </a>
          </li>
        ))}
      </ul>
      {wall.groups.length > 8 && <p class="wall-more">and {count(wall.groups.length - 8)} other kinds of failure</p>}
    </div>
  );
}
