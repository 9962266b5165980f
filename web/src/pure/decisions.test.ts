import { describe, expect, test } from "vitest";
import { countCodes, decisionNumbers } from "./decisions";

describe("the numbers of a decision", () => {
  test("are marked where they do not fit", () => {
    expect(decisionNumbers({ used: 80, requested: 30, capacity: 100, busy: 1.25 })).toEqual([
      { label: "used", value: "80", tight: false },
      { label: "asks for", value: "30", tight: true },
      { label: "of", value: "100", tight: true },
      { label: "busy", value: "1.3", tight: false },
    ]);
    expect(decisionNumbers({ used: 70, requested: 30, capacity: 100 }).some((one) => one.tight)).toBe(false);
    expect(decisionNumbers({})).toEqual([]);
  });

  test("denials are counted by their code", () => {
    const of = (code: string, approved = false) => ({ code, approved });
    expect(countCodes([of("ramp"), of("not_quiet"), of("not_quiet"), of("ok", true), of("capacity")])).toEqual([
      ["not_quiet", 2],
      ["capacity", 1],
      ["ramp", 1],
    ]);
  });
});
