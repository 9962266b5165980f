import { expect, test } from "vitest";
import { bytes, count, measure, percent, plural, shortCount } from "./units";

test("counts are exact, or short where there is no room", () => {
  expect(count(1_234_567)).toBe("1\u202f234\u202f567");
  expect([9999, 10_000, 999_400, 999_600, 3_400_000].map(shortCount)).toEqual(["9999", "10k", "999k", "1M", "3.4M"]);
  expect([plural(1, "job"), plural(0, "job"), plural(2, "process", "processes")]).toEqual(["1 job", "0 jobs", "2 processes"]);
});

test("amounts and measures", () => {
  expect([0, 1023, 1024, 1536, 1023.6 * 1024].map(bytes)).toEqual(["0 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB"]);
  expect([0.123456, 12, 1234.5678].map(measure)).toEqual(["0.123", "12", "1230"]);
  expect(percent(0.123)).toBe("12 %");
});
