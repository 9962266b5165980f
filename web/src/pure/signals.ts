// What makes the machine busy: each measured signal with its bound. The bounds come from the policy's ranges, as the daemon
// computes them: a signal alone reads a level between 0 and 10, and its bound is the value at which it reads the level asked for.
import { readNumber } from "./policy-text";

export interface SignalSample {
  readonly foreign_cpu?: number | null | undefined;
  readonly own_cpu?: number | null | undefined;
  readonly load_per_core?: number | null | undefined;
  readonly psi_cpu?: number | null | undefined;
  readonly psi_io?: number | null | undefined;
  readonly psi_memory?: number | null | undefined;
  readonly memory_available?: number | null | undefined;
  readonly disk_busy?: number | null | undefined;
  readonly disk_free?: number | null | undefined;
  readonly network?: number | null | undefined;
}

export interface SignalReading {
  readonly key: string;
  readonly name: string;
  /** With its unit. */
  readonly value: string;
  readonly bound: string;
  /** 0 to 10. */
  readonly level: number;
  /** The level of the bound. */
  readonly at: number;
  readonly high: boolean;
  /** Less is worse. */
  readonly lack: boolean;
  /** A signal that counts by its weight in a mean; the others alone are enough. */
  readonly weight: number | undefined;
}

interface Kind {
  readonly key: keyof SignalSample;
  /** The policy's name. */
  readonly field: string;
  readonly name: string;
  readonly unit: "part" | "percent" | "ratio";
  readonly weighted: boolean;
  readonly low: number;
  readonly high: number;
  readonly weight?: number;
}

/** With the ranges of the policy's default. */
const KINDS: readonly Kind[] = [
  { key: "foreign_cpu", field: "cpu", name: "CPU used by other programs", unit: "part", weighted: true, low: 0.1, high: 0.9, weight: 0.1 },
  { key: "load_per_core", field: "load_per_core", name: "load average per core", unit: "ratio", weighted: true, low: 0.2, high: 1.2, weight: 0.1 },
  { key: "psi_cpu", field: "psi_cpu", name: "CPU pressure of other programs", unit: "percent", weighted: false, low: 10, high: 80 },
  { key: "psi_io", field: "psi_io", name: "IO pressure", unit: "percent", weighted: false, low: 5, high: 60 },
  { key: "psi_memory", field: "psi_memory", name: "memory pressure", unit: "percent", weighted: false, low: 2, high: 30 },
  { key: "memory_available", field: "memory_available", name: "available memory", unit: "part", weighted: false, low: 0.2, high: 0.04 },
  { key: "disk_busy", field: "disk_busy", name: "busiest disk", unit: "part", weighted: false, low: 0.6, high: 1 },
  { key: "disk_free", field: "disk_free", name: "free space on the store's disk", unit: "part", weighted: false, low: 0.1, high: 0.02 },
  { key: "network", field: "network", name: "busiest network interface", unit: "part", weighted: true, low: 0.5, high: 1, weight: 0 },
];

function shown(value: number, unit: Kind["unit"]): string {
  if (unit === "part") return `${Math.round(value * 100)} %`;
  if (unit === "percent") return `${Math.round(value)} %`;
  return value.toFixed(1);
}

/** Reads the signals of a sample by a policy against a level of busy, such as `quiet.quiet_max`; the worst first. */
export function readSignals(sample: SignalSample, policy: string, at: number): SignalReading[] {
  const readings = KINDS.flatMap((kind): SignalReading[] => {
    const measured = sample[kind.key];
    if (typeof measured !== "number") return [];
    const field = (name: string): number | undefined => readNumber(policy, `busy.${kind.field}.${name}`);
    const low = field("low") ?? kind.low;
    const high = field("high") ?? kind.high;
    const weight = kind.weighted ? (field("weight") ?? kind.weight ?? 0) : undefined;
    // The kernel's figure includes our own jobs, which disturb nobody else: it counts by the others' share of the CPU.
    const others = sample.foreign_cpu ?? 0;
    const inUse = others + (sample.own_cpu ?? 0);
    const value = kind.key === "psi_cpu" && inUse > 0 ? measured * (others / inUse) : measured;
    const level = Math.min(10, Math.max(0, ((value - low) / (high - low)) * 10));
    return [
      {
        key: kind.field,
        name: kind.name,
        value: shown(value, kind.unit),
        bound: shown(low + ((high - low) * at) / 10, kind.unit),
        level,
        at,
        high: level > at && weight !== 0,
        lack: high < low,
        weight,
      },
    ];
  });
  return readings.sort((a, b) => Number(b.high) - Number(a.high) || b.level - a.level);
}
