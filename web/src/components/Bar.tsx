// A bar of parts of a whole, with the numbers in its label: capacity, progress, shares.

export interface Part {
  value: number;
  label: string;
  /** One of the tones of the style sheet. */
  tone?: "accent" | "running" | "reserved" | "done" | "failed" | "queued" | "warn";
}

interface Props {
  parts: readonly Part[];
  /** The whole; the sum of the parts if absent. */
  total?: number;
  /** What it shows, for screen readers. */
  label: string;
  thin?: boolean;
}

export function Bar({ parts, total, label, thin = false }: Props) {
  const whole = Math.max(total ?? 0, parts.reduce((sum, part) => sum + part.value, 0)) || 1;
  const text = parts.map((part) => `${part.label}: ${part.value}`).join(", ");
  return (
    <div class={thin ? "bar thin" : "bar"} role="img" aria-label={`${label}: ${text}${total === undefined ? "" : ` of ${total}`}`}>
      {parts.map((part) => (
        <span key={part.label} class={`bar-part tone-${part.tone ?? "accent"}`} title={`${part.label}: ${part.value}`} style={{ width: `${(part.value / whole) * 100}%` }} />
      ))}
    </div>
  );
}

/** How far something is, with its number beside the bar. A fraction that is not known is a bar that says so. */
export function Progress({ fraction, message }: { fraction: number | null | undefined; message?: string | null | undefined }) {
  const known = typeof fraction === "number";
  const share = known ? Math.min(1, Math.max(0, fraction)) : 0;
  return (
    <span class="progress" title={message ?? undefined}>
      <span class={known ? "progress-track" : "progress-track unknown"} role="progressbar" aria-valuemin={0} aria-valuemax={100} {...(known ? { "aria-valuenow": Math.round(share * 100) } : {})} aria-label={message ?? "progress"}>
        <span class="progress-fill" style={{ width: known ? `${share * 100}%` : "35%" }} />
      </span>
      {known && <span class="num">{Math.floor(share * 100)} %</span>}
    </span>
  );
}
