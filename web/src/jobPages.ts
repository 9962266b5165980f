// The list of jobs, newest first, in pages by key: each page is asked for by the id of the row above it (`before`), so that jobs
// that come or go in the meantime neither repeat nor hide a row. What is on the screen does not move: new jobs are put above only
// when the list is looked at from its top, and a job that no longer fits the filter stays, with its new state, until the list is
// read anew.
import type { Schemas } from "./api";
import type { LiveEvent } from "./live";

export type JobView = Schemas["JobView"];
/** A row keeps what the list shows: a payload may be large, and a hundred thousand rows may be loaded. */
export type JobRow = Omit<JobView, "payload" | "result">;

export type Page = Schemas["JobList"];

const slim = ({ payload: _, result: __, ...row }: JobView): JobRow => row;

export class JobPages {
  rows: JobRow[] = [];
  /** The id that the next page follows; null at the end. */
  next: string | null = null;
  /** New jobs that wait above the list. */
  above: JobRow[] = [];
  private places = new Map<string, number>();

  /** Begins anew with the first page. */
  begin(page: Page): void {
    this.rows = page.jobs.map(slim);
    this.next = page.next ?? null;
    this.above = [];
    this.index();
  }

  /** Adds the page that follows the id `after`; a page that came too late is left out. */
  append(page: Page, after: string): void {
    if (this.next !== after) return;
    for (const job of page.jobs) {
      if (this.places.has(job.job_id)) continue;
      this.places.set(job.job_id, this.rows.length);
      this.rows.push(slim(job));
    }
    this.next = page.next ?? null;
  }

  /** Takes what a new reading of the first page gave. Returns false if it does not reach the rows that are loaded. */
  refresh(page: Page): boolean {
    const fresh: JobRow[] = [];
    let meets = this.rows.length === 0 && this.above.length === 0;
    const waiting = new Map(this.above.map((row) => [row.job_id, row]));
    for (const job of page.jobs) {
      const place = this.places.get(job.job_id);
      if (place !== undefined) {
        this.rows[place] = slim(job);
        meets = true;
      } else if (!this.rows[0] || job.job_id > this.rows[0].job_id) {
        if (waiting.has(job.job_id)) meets = true;
        fresh.push(slim(job));
      }
    }
    if (!meets && page.next) return false;
    const known = new Set(fresh.map((row) => row.job_id));
    this.above = [...fresh, ...this.above.filter((row) => !known.has(row.job_id))];
    if (!this.rows.length) {
      this.rows = this.above;
      this.above = [];
      this.next = page.next ?? null;
      this.index();
    }
    return true;
  }

  /** Takes new views of rows, wherever they are. */
  update(jobs: readonly JobView[]): void {
    for (const job of jobs) {
      const place = this.places.get(job.job_id);
      if (place !== undefined) this.rows[place] = slim(job);
    }
  }

  /** Puts the new jobs on top of the list. */
  showAbove(): void {
    if (!this.above.length) return;
    this.rows = [...this.above, ...this.rows];
    this.above = [];
    this.index();
  }

  /** Takes what an event says of a row. Returns true if there is such a row. */
  apply(event: LiveEvent): boolean {
    const place = event.job_id ? this.places.get(event.job_id) : undefined;
    const row = place === undefined ? undefined : this.rows[place];
    if (place === undefined || !row) return false;
    const changed: JobRow = { ...row };
    if (event.state) {
      changed.state = event.state;
      if (event.event === "RUNNING") changed.started_at = event.at;
      if (event.state === "DONE" || event.state === "FAILED" || event.state === "CANCELED") changed.ended_at = event.at;
      else changed.ended_at = null;
      if (event.state === "FAILED" && event.reason) changed.last_error = event.reason;
    }
    this.rows[place] = changed;
    return true;
  }

  private index(): void {
    this.places = new Map(this.rows.map((row, place) => [row.job_id, place]));
  }
}
