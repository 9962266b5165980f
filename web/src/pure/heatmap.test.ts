import { describe, expect, test } from "vitest";
import { bestStretch, type HeatCell, heatLevel, weekHeatmap } from "./heatmap";

// 2026-11-16 is a Monday.
const MONDAY = Date.UTC(2026, 10, 16);
const HOUR = 3_600_000;
const sample = (hours: number, busy: number, minutes = 60, quiet = busy <= 2 ? minutes : 0) => ({ at: MONDAY + hours * HOUR, busy, minutes, quiet });

describe("the heat map of the week", () => {
  test("has a cell for each hour, Monday first, with the mean of its measurements", () => {
    const cells = weekHeatmap([sample(0, 1, 30), sample(0.5, 3, 30), sample(24 * 7, 5, 30, 15), sample(25, 8)], "UTC");
    expect(cells).toHaveLength(168);
    expect(cells[0]).toEqual({ day: 0, hour: 0, busy: 3, quiet: 0.5, minutes: 90 });
    expect(cells[25]).toMatchObject({ day: 1, hour: 1, busy: 8, quiet: 0 });
    expect(cells[26]).toMatchObject({ busy: undefined, minutes: 0 });
  });

  test("counts hours by the clock on the wall of the policy's time zone", () => {
    const at = (zone: string): number => weekHeatmap([sample(0, 5)], zone).findIndex((cell) => cell.minutes > 0);
    expect(at("UTC")).toBe(0);
    expect(at("Europe/Berlin")).toBe(1);
    expect(at("America/New_York")).toBe(6 * 24 + 19);
    expect(at("Asia/Kathmandu")).toBe(5);
  });

  test("a sample that is no number is left out", () => {
    expect(weekHeatmap([sample(0, Number.NaN)], "UTC")[0]).toMatchObject({ minutes: 0 });
  });

  test("shades follow the bounds of the states", () => {
    const bounds = { quiet: 2, normal: 5, busy: 7 };
    expect([0, 1, 1.5, 2, 2.1, 5, 5.5, 7, 7.1, 10].map((busy) => heatLevel(busy, bounds))).toEqual([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
  });

  test("the best stretch goes over the end of the week", () => {
    const cells = (quietHours: number[]): HeatCell[] =>
      Array.from({ length: 168 }, (_, i) => ({
        day: Math.floor(i / 24),
        hour: i % 24,
        busy: 1,
        quiet: quietHours.includes(i) ? 1 : 0,
        minutes: 60,
      }));
    expect(bestStretch(cells([166, 167, 0, 1, 50, 51]))).toEqual({ day: 6, hour: 22, hours: 4 });
    expect(bestStretch(cells([]))).toBeUndefined();
    expect(bestStretch(cells(Array.from({ length: 168 }, (_, i) => i)))).toEqual({ day: 0, hour: 0, hours: 168 });
  });
});
