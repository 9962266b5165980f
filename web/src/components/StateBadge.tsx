// A job's state as a shape, a word and a colour, so that each alone is enough.
import type { Schemas } from "../api";

export type JobState = Schemas["JobState"];

const SHAPES: Record<JobState, preact.JSX.Element> = {
  QUEUED: <circle cx="6" cy="6" r="4.2" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2.2 2.2" />,
  DISPATCHING: <path d="M6 1.800a4.2 4.2 0 0 1 0 8.400z M6 1.800a4.2 4.2 0 1 0 0 8.4" fill="currentColor" fill-opacity=".55" stroke="currentColor" stroke-width="1.4" />,
  RUNNING: <path d="M3.2 1.900l6.6 4.1-6.6 4.100z" fill="currentColor" stroke="currentColor" stroke-width="1" stroke-linejoin="round" />,
  DONE: <path d="M1.8 6.400l2.9 2.9 5.5-6.2" fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round" stroke-linejoin="round" />,
  FAILED: <path d="M2.5 2.500l7 7M9.5 2.500l-7 7" fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round" />,
  CANCELED: (
    <g fill="none" stroke="currentColor" stroke-width="1.5">
      <circle cx="6" cy="6" r="4.2" />
      <path d="M3.1 8.900l5.8-5.8" />
    </g>
  ),
};

/** The word for people: "queued". */
export const stateWord = (state: JobState): string => state.toLowerCase();

export function StateShape({ state }: { state: JobState }) {
  return (
    <svg class={`state-shape state-${stateWord(state)}`} width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" focusable="false">
      {SHAPES[state]}
    </svg>
  );
}

export function StateBadge({ state, quarantined = false }: { state: JobState; quarantined?: boolean | undefined }) {
  return (
    <span class={`badge state-${stateWord(state)}`}>
      <StateShape state={state} />
      {quarantined ? "quarantined" : stateWord(state)}
    </span>
  );
}
