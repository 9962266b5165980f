import { describe, expect, test } from "vitest";
import { chartColumns, stateBands, stateShares, usualDistance } from "./bands";

const samples = (states: string, step = 1000): { at: number; state: string }[] =>
  [...states].map((state, i) => ({ at: i * step, state })).filter((sample) => sample.state !== " ");

describe("bands of states", () => {
  test("equal states that follow each other are one band", () => {
    expect(stateBands(samples("QQQBBQ"), 6000)).toEqual([
      { state: "Q", from: 0, to: 3000 },
      { state: "B", from: 3000, to: 5000 },
      { state: "Q", from: 5000, to: 6000 },
    ]);
  });

  test("hours without a measurement are a gap", () => {
    expect(stateBands(samples("QQQ          QQ"), 15000)).toEqual([
      { state: "Q", from: 0, to: 5000 },
      { state: "Q", from: 13000, to: 15000 },
    ]);
  });

  test("the last measurement holds for a while, not for ever", () => {
    expect(stateBands(samples("QQ"), 100_000)).toEqual([{ state: "Q", from: 0, to: 4000 }]);
    expect(stateBands([], 5)).toEqual([]);
    expect(stateBands([{ at: 10, state: "Q" }], 5)).toEqual([]);
  });

  test("shares are of the time that was measured", () => {
    const shares = stateShares(stateBands(samples("QQQB"), 4000));
    expect(shares.get("Q")).toBeCloseTo(0.75);
    expect(shares.get("B")).toBeCloseTo(0.25);
  });

  test("a chart's columns break at a gap and keep what is unknown unknown", () => {
    const rows = [0, 1, 2, 20, 21].map((second) => ({ at: second * 1000, busy: second, cpu: second === 1 ? null : 0.5 }));
    const columns = chartColumns(rows, (row) => row.at, [(row) => row.busy, (row) => row.cpu]);
    expect(columns).toEqual([
      [0, 1, 2, 3, 20, 21],
      [0, 1, 2, null, 20, 21],
      [0.5, null, 0.5, null, 0.5, 0.5],
    ]);
  });

  test("the usual distance is the median", () => {
    expect(usualDistance([0, 10, 20, 30, 1000])).toBe(10);
    expect(usualDistance([])).toBe(1000);
  });
});
