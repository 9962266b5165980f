import { describe, expect, test } from "vitest";
import { nextRuns, parseCron } from "./cron";

const runs = (cron: string, zone: string, after: string, count = 3): string[] => nextRuns(cron, zone, Date.parse(after), count).map((at) => new Date(at).toISOString().replace(".000Z", "Z"));

describe("the next firings of a schedule", () => {
  test("are on the clock of the schedule's zone", () => {
    expect(runs("30 2 * * mon-fri", "Europe/Berlin", "2026-11-13T12:00:00Z")).toEqual(["2026-11-16T01:30:00Z", "2026-11-17T01:30:00Z", "2026-11-18T01:30:00Z"]);
    expect(runs("*/20 * * * *", "UTC", "2026-11-13T12:05:00Z")).toEqual(["2026-11-13T12:20:00Z", "2026-11-13T12:40:00Z", "2026-11-13T13:00:00Z"]);
    expect(runs("@monthly", "UTC", "2026-11-13T12:00:00Z", 2)).toEqual(["2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"]);
    expect(runs("15 0 10 * * ?", "UTC", "2026-11-13T12:00:00Z", 1)).toEqual(["2026-11-14T10:00:15Z"]);
  });

  test("a firing at the very moment is not a next one", () => {
    expect(runs("0 3 * * *", "UTC", "2026-11-13T03:00:00Z", 1)).toEqual(["2026-11-14T03:00:00Z"]);
  });

  test("when both days are restricted, either suffices", () => {
    expect(runs("0 0 13 * fri", "UTC", "2026-11-10T00:00:00Z", 3)).toEqual(["2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z"]);
    expect(runs("0 0 14 * fri", "UTC", "2026-11-12T12:00:00Z", 2)).toEqual(["2026-11-13T00:00:00Z", "2026-11-14T00:00:00Z"]);
    expect(runs("0 0 * * 7", "UTC", "2026-11-13T00:00:00Z", 1)).toEqual(["2026-11-15T00:00:00Z"]);
  });

  test("29 February comes", () => {
    expect(runs("0 0 29 feb *", "UTC", "2026-03-01T00:00:00Z", 1)).toEqual(["2028-02-29T00:00:00Z"]);
    expect(runs("0 0 30 2 *", "UTC", "2026-03-01T00:00:00Z", 1)).toEqual([]);
  });

  test("a time that is skipped fires at the change, and once", () => {
    // 2026-03-29 02:00 becomes 03:00 in Berlin, at 01:00 UTC.
    expect(runs("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2)).toEqual(["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    expect(runs("10,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2)).toEqual(["2026-03-29T01:00:00Z", "2026-03-30T00:10:00Z"]);
    expect(runs("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 2)).toEqual(["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]);
  });

  test("a time that comes twice fires the first time only, unless each hour is meant", () => {
    // 2026-10-25 03:00 becomes 02:00 in Berlin, at 01:00 UTC.
    expect(runs("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2)).toEqual(["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    expect(runs("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3)).toEqual(["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]);
  });

  test("what makes no sense has none", () => {
    for (const wrong of ["", "61 * * * *", "* * *", "a * * * *", "5-1 * * * *", "*/0 * * * *", "1/2/3 * * * *"]) {
      expect(parseCron(wrong), wrong).toBeUndefined();
    }
    expect(nextRuns("* * * * *", "Nowhere/Land", 0, 3)).toEqual([]);
  });
});
