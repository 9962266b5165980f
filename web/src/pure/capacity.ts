// A node's capacity as one bar: what is used, what is reserved for jobs that were dispatched, what is free,
// and what the load of other programs takes away.

export interface CapacityInput {
  /** Units that may be used at the present load. */
  readonly capacity: number;
  /** Units of live leases and reservations together. */
  readonly used: number;
  /** Units of `used` that are reservations only. */
  readonly reserved?: number | undefined;
  /** Units of the idle machine. */
  readonly units?: number | undefined;
}

export type CapacityKind = "used" | "reserved" | "free" | "withheld" | "over";

export interface CapacitySegment {
  readonly kind: CapacityKind;
  readonly units: number;
  /** Where it begins and how long it is, in percent of the bar. */
  readonly from: number;
  readonly length: number;
}

/**
 * Divides the bar. The lengths add up to 100.
 *
 * Used units can exceed the capacity, as when load rises while jobs run: the part above it is `over`.
 */
export function capacitySegments(input: CapacityInput): CapacitySegment[] {
  const capacity = Math.max(0, input.capacity);
  const taken = Math.max(0, input.used);
  const reserved = Math.min(Math.max(0, input.reserved ?? 0), taken);
  const whole = Math.max(input.units ?? 100, capacity, taken, 1);
  const over = Math.max(0, taken - capacity);
  const running = taken - reserved;
  // What is over the capacity is taken from what is shown last: the reservations, then the leases.
  const reservedInside = Math.max(0, reserved - over);
  const runningInside = running - Math.max(0, over - reserved);
  const parts: [CapacityKind, number][] = [
    ["used", runningInside],
    ["reserved", reservedInside],
    ["over", over],
    ["free", Math.max(0, capacity - taken)],
    ["withheld", whole - Math.max(capacity, taken)],
  ];
  const segments: CapacitySegment[] = [];
  let from = 0;
  for (const [kind, units] of parts) {
    if (units <= 0) continue;
    const length = (units / whole) * 100;
    segments.push({ kind, units, from, length });
    from += length;
  }
  return segments;
}

/** Says in words what the bar shows: for those who do not see it. */
export function capacityText(input: CapacityInput): string {
  const reserved = Math.min(input.reserved ?? 0, input.used);
  const units = input.units ?? 100;
  const parts = [`${input.used - reserved} of ${input.capacity} units used`];
  if (reserved > 0) parts.push(`${reserved} reserved`);
  parts.push(`${Math.max(0, input.capacity - input.used)} free`);
  if (units > input.capacity) parts.push(`${units - input.capacity} withheld because of the load`);
  return parts.join(", ");
}
