// A number that is read from afar, with what it counts; a link to what it counts.
import type { ComponentChildren } from "preact";

interface Props {
  label: string;
  value: ComponentChildren;
  /** Below the number, in small letters. */
  note?: ComponentChildren;
  to?: string;
  tone?: "plain" | "running" | "warn" | "failed" | "done";
}

export function Stat({ label, value, note, to, tone = "plain" }: Props) {
  const inside = (
    <>
      <span class="stat-label">{label}</span>
      <span class="stat-value">{value}</span>
      <span class="stat-note">{note ?? "\u00a0"}</span>
    </>
  );
  return to ? (
    <a class={`stat stat-${tone}`} href={to}>
      {inside}
    </a>
  ) : (
    <div class={`stat stat-${tone}`}>{inside}</div>
  );
}
