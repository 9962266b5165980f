import { expect, test } from "vitest";
import { JobPages, type JobView } from "./jobPages";
import type { LiveEvent } from "./live";

const job = (id: number, state = "QUEUED") => ({ job_id: String(id).padStart(4, "0"), state, payload: { big: "x" } }) as unknown as JobView;
const ids = (pages: JobPages) => pages.rows.map((row) => Number(row.job_id));
const event = (id: number, kind: string, state: string) => ({ job_id: String(id).padStart(4, "0"), event: kind, state, at: "2026-01-01T00:00:00Z", cursor: 1 }) as LiveEvent;

test("pages follow each other, and one that came too late is left out", () => {
  const pages = new JobPages();
  pages.begin({ jobs: [job(9), job(8)], next: "0008" });
  pages.append({ jobs: [job(7), job(6)], next: "0006" }, "0008");
  pages.append({ jobs: [job(7), job(6)], next: "0006" }, "0008");
  pages.append({ jobs: [job(5)] }, "0006");
  expect(ids(pages)).toEqual([9, 8, 7, 6, 5]);
  expect(pages.next).toBeNull();
  expect(pages.rows[0]).not.toHaveProperty("payload");
});

test("new jobs wait above until they are wanted", () => {
  const pages = new JobPages();
  pages.begin({ jobs: [job(5), job(4)], next: "0004" });
  expect(pages.refresh({ jobs: [job(7), job(6), job(5, "RUNNING")], next: "0005" })).toBe(true);
  expect(pages.refresh({ jobs: [job(8), job(7), job(6)], next: "0006" })).toBe(true);
  expect(ids(pages)).toEqual([5, 4]);
  expect(pages.rows[0]?.state).toBe("RUNNING");
  pages.showAbove();
  expect(ids(pages)).toEqual([8, 7, 6, 5, 4]);
  expect(pages.apply(event(4, "DONE", "DONE"))).toBe(true);
  expect(pages.rows[4]).toMatchObject({ state: "DONE", ended_at: "2026-01-01T00:00:00Z" });
});

test("a first page that does not reach the rows says so", () => {
  const pages = new JobPages();
  pages.begin({ jobs: [job(5), job(4)], next: "0004" });
  expect(pages.refresh({ jobs: [job(90), job(80)], next: "0080" })).toBe(false);
  expect(ids(pages)).toEqual([5, 4]);
  expect(pages.above).toEqual([]);
});

test("an empty list takes its first jobs", () => {
  const pages = new JobPages();
  pages.begin({ jobs: [] });
  pages.refresh({ jobs: [job(1)] });
  expect(ids(pages)).toEqual([1]);
  expect(pages.apply(event(2, "RUNNING", "RUNNING"))).toBe(false);
});
