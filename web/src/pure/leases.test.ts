import { describe, expect, test } from "vitest";
import { leaseLeft } from "./leases";

describe("the time that is left to a lease", () => {
  const lease = { granted_at: "2026-11-16T12:00:00Z", expires_at: "2026-11-16T12:00:30Z" };
  const at = (second: number): number => Date.parse("2026-11-16T12:00:00Z") + second * 1000;

  test("shrinks to nothing and no further", () => {
    expect(leaseLeft(lease, at(0))).toEqual({ seconds: 30, part: 0.5 });
    expect(leaseLeft(lease, at(29.5)).seconds).toBeCloseTo(0.5);
    expect(leaseLeft(lease, at(99))).toEqual({ seconds: 0, part: 0 });
  });

  test("never fills more than the bar", () => {
    expect(leaseLeft(lease, at(-900)).part).toBe(1);
    expect(leaseLeft({ ...lease, expires_at: "?" }, at(0))).toEqual({ seconds: 0, part: 0 });
  });
});
