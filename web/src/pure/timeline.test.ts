import { describe, expect, test } from "vitest";
import { jobLabel, layoutTimeline, tickStep, type TimelineJob } from "./timeline";

const NOW = 1_000_000_000;
const job = (id: string, addon: string, ago: number, more: Partial<TimelineJob> = {}): TimelineJob => ({
  id,
  addon,
  label: id,
  state: "RUNNING",
  startedAt: NOW - ago,
  ...more,
});

describe("the timeline", () => {
  test("a bar ends at now and is as long as its job has run", () => {
    const { bars, from, to } = layoutTimeline([job("a", "x", 50_000), job("b", "x", 25_000)], { now: NOW, width: 1000 });
    const [a, b] = bars;
    expect(a && a.x + a.width).toBeCloseTo(1000);
    expect(b && b.x + b.width).toBeCloseTo(1000);
    expect(a && b && a.width / b.width).toBeCloseTo(2);
    expect(to - from).toBeCloseTo(52_000);
  });

  test("the room left of a bar ends at the bar before it", () => {
    const { bars } = layoutTimeline([job("first", "x", 50_000, { endedAt: NOW - 30_000 }), job("second", "x", 10_000)], { now: NOW, width: 1000, minSpan: 100_000 });
    expect(bars.map((bar) => Math.round(bar.room))).toEqual([500, 200]);
  });

  test("jobs that overlap get lanes of their own, jobs one after the other share one", () => {
    const { bars, groups } = layoutTimeline(
      [
        job("long", "x", 60_000),
        job("first", "x", 50_000, { endedAt: NOW - 40_000 }),
        job("second", "x", 30_000),
      ],
      { now: NOW, width: 1000 },
    );
    const y = new Map(bars.map((bar) => [bar.job.id, bar.y]));
    expect(y.get("first")).toBe(y.get("second"));
    expect(y.get("long")).not.toBe(y.get("first"));
    expect(groups).toMatchObject([{ addon: "x", jobs: 3, hidden: 0 }]);
  });

  test("no two bars of a layout cover each other", () => {
    let seed = 7;
    const random = (): number => (seed = (seed * 48271) % 2147483647) / 2147483647;
    const jobs = Array.from({ length: 300 }, (_, i) => {
      const start = random() * 3_600_000;
      return job(`j${i}`, `addon${i % 5}`, start, random() < 0.7 ? { endedAt: NOW - start * random() } : {});
    });
    const { bars, groups, height, from } = layoutTimeline(jobs, { now: NOW, width: 800, maxLanes: 12 });
    for (const a of bars) {
      expect(a.x).toBeGreaterThanOrEqual(0);
      expect(a.x + a.width).toBeLessThanOrEqual(800.001);
      expect(a.y + a.height).toBeLessThanOrEqual(height);
      for (const b of bars) {
        if (a === b || a.y !== b.y) continue;
        expect(a.x + a.width <= b.x || b.x + b.width <= a.x).toBe(true);
      }
    }
    const hidden = groups.reduce((sum, group) => sum + group.hidden, 0);
    expect(bars.length + hidden).toBe(jobs.filter((one) => one.endedAt === undefined || one.endedAt >= from).length);
    expect(hidden).toBeGreaterThan(0);
  });

  test("groups are in the order of their names and do not overlap", () => {
    const { groups } = layoutTimeline([job("1", "zebra", 10), job("2", "ant", 10), job("3", "ant", 20)], { now: NOW, width: 500 });
    expect(groups.map((group) => group.addon)).toEqual(["ant", "zebra"]);
    const [ant, zebra] = groups;
    expect(ant && zebra && ant.y + ant.height <= zebra.y).toBe(true);
  });

  test("progress fills its part of the bar and never more", () => {
    const at = (fraction: number): number | undefined =>
      layoutTimeline([job("a", "x", 100_000, { fraction })], { now: NOW, width: 1000 }).bars[0]?.done;
    const width = layoutTimeline([job("a", "x", 100_000)], { now: NOW, width: 1000 }).bars[0]?.width ?? 0;
    expect(at(0.25)).toBeCloseTo(width / 4);
    expect(at(7)).toBeCloseTo(width);
    expect(at(-1)).toBe(0);
  });

  test("what ended before the window is left out, and does not lengthen it", () => {
    const ended = (id: string, began: number, end: number): TimelineJob => job(id, "x", began, { endedAt: NOW - end, state: "DONE" });
    const { bars, from } = layoutTimeline([job("runs", "x", 40_000), ended("early", 90_000, 80_000), ended("over", 90_000, 20_000)], { now: NOW, width: 1000, minSpan: 60_000 });
    expect(NOW - from).toBe(60_000);
    expect(bars.map((bar) => bar.job.id).sort()).toEqual(["over", "runs"]);
    const over = bars.find((bar) => bar.job.id === "over");
    expect(over && over.x + over.width).toBeCloseTo((40 / 60) * 1000);
    expect(over?.clipped).toBe(true);
  });

  test("a job that just began, or by a clock that is ahead, stays visible", () => {
    for (const ago of [0, -5_000]) {
      const [bar] = layoutTimeline([job("a", "x", ago)], { now: NOW, width: 600 }).bars;
      expect(bar?.width).toBeGreaterThanOrEqual(4);
      expect(bar && bar.x + bar.width).toBeLessThanOrEqual(600);
    }
  });

  test("a job from before the longest window is clipped", () => {
    const [bar] = layoutTimeline([job("a", "x", 9 * 3_600_000)], { now: NOW, width: 600, maxSpan: 3_600_000 }).bars;
    expect(bar).toMatchObject({ x: 0, clipped: true });
  });

  test("nothing runs: no bar, but ticks", () => {
    const empty = layoutTimeline([], { now: NOW, width: 600 });
    expect(empty.bars).toEqual([]);
    expect(empty.ticks[0]).toEqual({ x: 600, ago: 0 });
    expect(empty.height).toBe(0);
  });

  test("ticks are round and few", () => {
    for (const span of [30_000, 61_000, 1_000_000, 40_000_000, 900_000_000]) {
      const step = tickStep(span, 6);
      expect(span / step).toBeLessThanOrEqual(6);
      expect(step % 1000).toBe(0);
    }
  });

  test("a job is named by its summary, else by type and tag", () => {
    expect(jobLabel({ job_type: "index", summary: "holiday.jpg" })).toBe("holiday.jpg");
    expect(jobLabel({ job_type: "index", tags: ["night"] })).toBe("index · night");
    expect(jobLabel({ job_type: "index" })).toBe("index");
  });
});
