import { expect, test } from "vitest";
import type { Schemas } from "./api";
import { FAILED_LATELY_TEXT, type Failures, countLately, lastFailure, newestFailures } from "./failures";

const NOW = Date.parse("2026-01-02T12:00:00Z");
const job = (id: string, minutes: number) => ({ job_id: id, state: "FAILED", ended_at: new Date(NOW - minutes * 60_000).toISOString() }) as Schemas["JobView"];

test("a job counts by its end, wherever it stands by its submission", () => {
  // "old" was submitted first and failed last; the newest by submission failed long ago.
  const failures: Failures = { lately: [job("old", 5), job("b", 59)], any: [job("z", 300), job("b", 59)], more: false };
  expect(countLately(failures, NOW)).toEqual({ number: 2, more: false });
  expect(countLately(failures, NOW + 2 * 60_000).number).toBe(1);
  expect(newestFailures(failures).map(({ job_id }) => job_id)).toEqual(["old", "b", "z"]);
  expect(lastFailure(failures)).toBe(NOW - 5 * 60_000);
  expect(newestFailures(undefined)).toEqual([]);
  expect(lastFailure(undefined)).toBeUndefined();
});

test("the filter of the number is the one that it links to", () => {
  expect(FAILED_LATELY_TEXT).toBe("state:failed ended:1h");
});
