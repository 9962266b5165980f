// The numbers of decisions, in the order in which they are compared.

export interface Numbers {
  readonly busy?: number;
  readonly capacity?: number;
  readonly requested?: number;
  readonly used?: number;
}

export interface ShownNumber {
  readonly label: string;
  readonly value: string;
  /** It does not fit into what there is. */
  readonly tight: boolean;
}

/** Returns the numbers for people: what was used and asked for against the capacity, and how busy the machine was. */
export function decisionNumbers(numbers: Numbers): ShownNumber[] {
  const shown: ShownNumber[] = [];
  const { busy, capacity, requested, used } = numbers;
  const full = capacity !== undefined && (used ?? 0) + (requested ?? 0) > capacity;
  if (used !== undefined) shown.push({ label: "used", value: String(used), tight: false });
  if (requested !== undefined) shown.push({ label: "asks for", value: String(requested), tight: full });
  if (capacity !== undefined) shown.push({ label: "of", value: String(capacity), tight: full });
  if (busy !== undefined) shown.push({ label: "busy", value: busy.toFixed(1), tight: false });
  return shown;
}

/** Counts the codes of denials, the most frequent first. */
export function countCodes(decisions: readonly { readonly approved: boolean; readonly code: string }[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const one of decisions) if (!one.approved) counts.set(one.code, (counts.get(one.code) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
