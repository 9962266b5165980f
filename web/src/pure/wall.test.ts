import { describe, expect, test } from "vitest";
import { errorKind, wallOf } from "./wall";

const NOW = Date.parse("2026-11-16T12:00:00Z");
const failed = (job_id: string, minutes: number, last_error: string, job_type = "index") => ({
  job_id,
  addon_id: "photos",
  job_type,
  last_error,
  ended_at: new Date(NOW - minutes * 60_000).toISOString(),
});

describe("the wall", () => {
  test("equal failures are one line, with the newest of them", () => {
    const wall = wallOf([failed("a", 9, "timeout after 31 s"), failed("b", 2, "timeout after 7 s"), failed("c", 5, "no space")], NOW);
    expect(wall.groups).toMatchObject([
      { newest: "b", count: 2, error: "timeout after 7 s" },
      { newest: "c", count: 1 },
    ]);
    expect(wall.lastHour).toBe(3);
  });

  test("older failures are not shown", () => {
    expect(wallOf([failed("a", 61, "x"), failed("b", 300, "y")], NOW)).toEqual({ groups: [], lastHour: 0 });
  });

  test("numbers, addresses and ids do not make another kind", () => {
    expect(errorKind("job 019a0000-1111-7222-8333-444455556666 hung up at 0xdeadbeef, 12:30\nat line 7")).toBe("job … hung up at …, #");
    expect(errorKind(null)).toBe("");
  });
});
