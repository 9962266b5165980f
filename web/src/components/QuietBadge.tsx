// How busy a machine is, as a shape, a word and a colour.
import type { Schemas } from "../api";

export type QuietState = Schemas["QuietState"];

/** How many bars of three are full: the shape tells the state without its colour. */
const BARS: Record<QuietState, number> = { QUIET: 0, NORMAL: 1, BUSY: 2, PANIC: 3 };

export const quietTone = (state: QuietState): string => `quiet-${state.toLowerCase()}`;

export function QuietBadge({ state, large = false }: { state: QuietState; large?: boolean }) {
  const full = BARS[state];
  return (
    <span class={`badge ${quietTone(state)}${large ? " large" : ""}`}>
      <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" focusable="false">
        {[0, 1, 2].map((bar) => (
          <rect key={bar} x={0.5 + bar * 4} y={8 - bar * 3.2} width="3" height={3.500 + bar * 3.2} rx="0.8" fill={bar < full ? "currentColor" : "none"} stroke="currentColor" stroke-width="0.9" />
        ))}
      </svg>
      {state.toLowerCase()}
    </span>
  );
}
