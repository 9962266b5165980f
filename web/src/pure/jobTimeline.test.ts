import { expect, test } from "vitest";
import { ticks, timelineOf } from "./jobTimeline";

let cursor = 0;
const at = (second: number) => new Date(1_700_000_000_000 + second * 1000).toISOString();
const event = (second: number, event: string, state: string | null, more: object = {}) => ({ cursor: ++cursor, at: at(second), event, state, ...more }) as Parameters<typeof timelineOf>[0][number];

test("a retry gives two attempts under two leases", () => {
  const line = timelineOf([
    event(0, "SUBMITTED", "QUEUED"),
    event(5, "DENIED", "QUEUED", { reason: "busy" }),
    event(10, "RUNNING", "RUNNING", { lease_id: "aaaa", attempt: 1, node_id: "n" }),
    event(12, "RETRY_SCHEDULED", "QUEUED", { lease_id: "aaaa", attempt: 1, reason: "no network" }),
    event(20, "RUNNING", "RUNNING", { lease_id: "bbbb", attempt: 2 }),
    event(25, "DONE", "DONE", { lease_id: "bbbb", attempt: 2 }),
  ]);
  const short = (bars: { from: number; to: number | undefined; state: string }[]) => bars.map(({ from, to, state }) => [(from - (line?.from ?? 0)) / 1000, to === undefined ? null : (to - (line?.from ?? 0)) / 1000, state]);
  expect(short(line?.states ?? [])).toEqual([[0, 10, "QUEUED"], [10, 12, "RUNNING"], [12, 20, "QUEUED"], [20, 25, "RUNNING"], [25, 25, "DONE"]]);
  expect(short(line?.attempts ?? [])).toEqual([[10, 12, "FAILED"], [20, 25, "DONE"]]);
  expect(line?.attempts[0]).toMatchObject({ label: "attempt 1", note: "no network" });
  expect(short(line?.leases ?? [])).toEqual([[10, 12, "DISPATCHING"], [20, 25, "DISPATCHING"]]);
  expect(line?.marks).toMatchObject([{ event: "DENIED", label: "denied: busy" }]);
  expect((line?.to ?? 0) - (line?.from ?? 0)).toBe(25_000);
});

test("what lasts has no end", () => {
  const line = timelineOf([event(0, "SUBMITTED", "QUEUED"), event(1, "DISPATCHING", "DISPATCHING", { lease_id: "aaaa" }), event(2, "RUNNING", "RUNNING", { lease_id: "aaaa" })]);
  expect(line?.to).toBeUndefined();
  expect(line?.attempts[0]?.to).toBeUndefined();
  expect(line?.leases).toHaveLength(1);
  expect(timelineOf([])).toBeNull();
});

test("ticks are round and few", () => {
  expect(ticks(0, 60_000, 6)).toEqual([0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]);
  expect(ticks(0, 7 * 86_400_000, 8).length).toBeLessThanOrEqual(9);
  expect(ticks(0, 0, 5)).toEqual([0]);
});
