// The states beside the list of jobs, with how many there are; each is a link to its filter.
import type { Schemas } from "../api";
import { type JobFilter, STATES, withTerm } from "../filter";
import { href } from "../router";
import { count } from "../units";
import { StateShape, stateWord } from "./StateBadge";

interface Props {
  /** The whole filter, as it is typed. */
  text: string;
  filter: JobFilter;
  status: Schemas["StatusView"] | undefined;
}

/** Returns how many jobs of a state the filter finds beside its own state, where the daemon counts them; else null. */
export function counted(status: Schemas["StatusView"] | undefined, filter: JobFilter, state: Schemas["JobState"]): number | null {
  if (!status || filter.job_type || filter.tag || filter.text || filter.id || filter.quarantined || filter.ended) return null;
  if (!filter.addon_id) return status.jobs[state] ?? 0;
  const addon = status.addons[filter.addon_id];
  if (state === "QUEUED") return addon?.queued ?? 0;
  if (state === "DISPATCHING") return addon?.dispatching ?? 0;
  if (state === "RUNNING") return addon?.running ?? 0;
  return null;
}

export function StateList({ text, filter, status }: Props) {
  const all = STATES.map((state) => counted(status, filter, state));
  const total = all.every((one) => one !== null) ? all.reduce<number>((sum, one) => sum + (one ?? 0), 0) : null;
  const to = (state: string | null) => href("/jobs", { q: withTerm(text, "state", state) });
  return (
    <nav class="state-list" aria-label="States">
      <a href={to(null)} aria-current={filter.state.length === 0 ? "true" : undefined}>
        <span class="state-all" aria-hidden="true" />
        <span>all</span>
        {total !== null && <span class="num">{count(total)}</span>}
      </a>
      {STATES.map((state, index) => (
        <a key={state} href={to(stateWord(state))} class={`state-${stateWord(state)}`} aria-current={filter.state.includes(state) ? "true" : undefined}>
          <StateShape state={state} />
          <span>{stateWord(state)}</span>
          {all[index] !== null && <span class="num">{count(all[index] ?? 0)}</span>}
        </a>
      ))}
    </nav>
  );
}
