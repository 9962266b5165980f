// A machine's capacity as one bar: used, reserved, free, and what the load of other programs takes away.
import { type CapacityInput, type CapacityKind, capacitySegments, capacityText } from "../pure/capacity";

const WORDS: Record<CapacityKind, string> = {
  used: "used",
  reserved: "reserved",
  over: "above the capacity",
  free: "free",
  withheld: "withheld: the machine is busy",
};

export function CapacityBar({ legend = false, ...input }: CapacityInput & { legend?: boolean }) {
  const segments = capacitySegments(input);
  return (
    <div class="capacity">
      <div class="capacity-bar" role="img" aria-label={`Capacity: ${capacityText(input)}`}>
        {segments.map(({ kind, units, length }) => (
          <span key={kind} class={`capacity-part capacity-${kind}`} style={{ width: `${length}%` }} title={`${units} ${WORDS[kind]}`} />
        ))}
      </div>
      {legend && (
        <ul class="legend">
          {segments.map(({ kind, units }) => (
            <li key={kind}>
              <span class={`legend-mark capacity-${kind}`} aria-hidden="true" />
              <span class="num">{units}</span> {WORDS[kind]}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
