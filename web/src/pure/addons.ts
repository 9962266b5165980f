// What the daemon tells about addons in four places, as one row each.
import { readNumber } from "./policy-text";

export interface AddonRow {
  readonly addon: string;
  readonly queued: number;
  readonly dispatching: number;
  readonly running: number;
  readonly paused: boolean;
  readonly pauseReason: string | undefined;
  readonly weight: number;
  /** Its part of the weights of all addons with jobs, 0 to 1. */
  readonly share: number;
  /** Its own cap of leases, if the policy sets one. */
  readonly leases: number | undefined;
  readonly ended: number;
  /** The mean over its types, by jobs. */
  readonly wait: number | undefined;
  readonly success: number | undefined;
}

interface Status {
  readonly addons: Readonly<Record<string, { queued?: number; dispatching?: number; running?: number; paused?: boolean }>>;
}
interface History {
  readonly addon_id: string;
  readonly ended: number;
  readonly average_wait_sec?: number | null;
  readonly success_rate?: number | null;
}
interface Pause {
  readonly addon_id: string;
  readonly job_type?: string | null;
  readonly reason?: string | null;
}

/** Joins them; those with the most open jobs first. */
export function addonRows(status: Status, history: readonly History[], pauses: readonly Pause[], policy: string): AddonRow[] {
  const names = new Set([...Object.keys(status.addons), ...history.map((one) => one.addon_id), ...pauses.map((one) => one.addon_id)]);
  const weight = (addon: string): number => readNumber(policy, `addons.${addon}.weight`) ?? 1;
  const whole = [...names].reduce((sum, addon) => sum + weight(addon), 0);
  const rows = [...names].map((addon): AddonRow => {
    const now = status.addons[addon];
    const pause = pauses.find((one) => one.addon_id === addon && !one.job_type);
    const did = history.filter((one) => one.addon_id === addon);
    const mean = (value: (one: History) => number | null | undefined): number | undefined => {
      let sum = 0;
      let jobs = 0;
      for (const one of did) {
        const known = value(one);
        if (typeof known !== "number") continue;
        sum += known * one.ended;
        jobs += one.ended;
      }
      return jobs > 0 ? sum / jobs : undefined;
    };
    return {
      addon,
      queued: now?.queued ?? 0,
      dispatching: now?.dispatching ?? 0,
      running: now?.running ?? 0,
      paused: now?.paused === true || pause !== undefined,
      pauseReason: pause?.reason ?? undefined,
      weight: weight(addon),
      share: whole > 0 ? weight(addon) / whole : 0,
      leases: readNumber(policy, `addons.${addon}.leases`),
      ended: did.reduce((sum, one) => sum + one.ended, 0),
      wait: mean((one) => one.average_wait_sec),
      success: mean((one) => one.success_rate),
    };
  });
  const open = (row: AddonRow): number => row.queued + row.dispatching + row.running;
  return rows.sort((a, b) => open(b) - open(a) || b.ended - a.ended || (a.addon < b.addon ? -1 : 1));
}
