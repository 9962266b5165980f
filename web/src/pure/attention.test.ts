import { describe, expect, test } from "vitest";
import { type AttentionJob, needAttention, TROUBLES, troubleOf, troubleText } from "./attention";

const NOW = Date.parse("2026-11-16T12:00:00Z");
const ago = (seconds: number): string => new Date(NOW - seconds * 1000).toISOString();
const job = (job_id: string, more: Partial<AttentionJob> = {}): AttentionJob => ({
  job_id,
  state: "QUEUED",
  created_at: ago(60),
  ...more,
});

describe("what needs attention", () => {
  const running = (more: Partial<AttentionJob>) => job("r", { state: "RUNNING", ...more });

  test("each trouble is recognised", () => {
    const of = (each: AttentionJob, reason?: string) => troubleOf(each, reason, NOW)?.trouble;
    expect(of(running({ started_at: ago(50), max_runtime_sec: 40 }))).toBe("overdue");
    expect(of(running({ started_at: ago(4000), expected_duration_sec: 60 }))).toBe("stuck");
    expect(of(running({ started_at: ago(400), expected_duration_sec: 60 }))).toBeUndefined();
    expect(of(running({ started_at: ago(30), cancel_requested: true }))).toBe("cancelling");
    expect(of(job("l", { deadline_at: ago(5) }))).toBe("late");
    expect(of(job("l", { deadline_at: ago(-500) }))).toBeUndefined();
    expect(of(job("l", { deadline_at: ago(-500), deadline_at_risk: true }))).toBe("at-risk");
    expect(of(job("u"), "no_worker")).toBe("unserved");
    expect(of(job("u", { created_at: ago(2) }), "no_worker")).toBeUndefined();
    expect(of(job("u"), "not_quiet")).toBeUndefined();
    expect(of(job("q", { state: "FAILED", quarantined: true }))).toBe("quarantined");
    expect(of(job("d", { state: "DONE", deadline_at: ago(99) }))).toBeUndefined();
  });

  test("the worst is first, of equal trouble the longest", () => {
    const jobs = [
      job("risk", { deadline_at: ago(-60), deadline_at_risk: true }),
      job("unserved"),
      job("late-10", { deadline_at: ago(10) }),
      job("late-90", { deadline_at: ago(90) }),
      job("fine"),
      running({ job_id: "stuck", started_at: ago(9999), expected_duration_sec: 1 }),
    ];
    const reasons = new Map([["unserved", "unserved"]]);
    expect(needAttention(jobs, reasons, NOW).map((each) => each.job.job_id)).toEqual(["stuck", "late-90", "late-10", "unserved", "risk"]);
  });

  test("a time that cannot be read is no trouble", () => {
    expect(troubleOf(job("x", { deadline_at: "soon" }), undefined, NOW)).toBeUndefined();
  });

  test("every trouble has words", () => {
    for (const trouble of TROUBLES) expect(troubleText(trouble)).not.toBe("");
  });
});
