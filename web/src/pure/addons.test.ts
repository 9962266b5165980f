import { describe, expect, test } from "vitest";
import { addonRows } from "./addons";

describe("the rows of the addons", () => {
  const status = { addons: { photos: { queued: 3, running: 1 }, reports: { queued: 9 } } };
  const history = [
    { addon_id: "photos", ended: 30, average_wait_sec: 10, success_rate: 1 },
    { addon_id: "photos", ended: 10, average_wait_sec: 50, success_rate: 0.5 },
    { addon_id: "old", ended: 5, average_wait_sec: null, success_rate: null },
  ];

  test("join what four calls tell, those with the most open jobs first", () => {
    const rows = addonRows(status, history, [{ addon_id: "reports", reason: "moving" }, { addon_id: "photos", job_type: "index" }], "[addons.photos]\nweight = 3\nleases = 2\n");
    expect(rows.map((row) => row.addon)).toEqual(["reports", "photos", "old"]);
    const [reports, photos, old] = rows;
    expect(reports).toMatchObject({ paused: true, pauseReason: "moving", queued: 9, weight: 1, wait: undefined });
    // A paused type does not pause the addon.
    expect(photos).toMatchObject({ paused: false, ended: 40, wait: 20, success: 0.875, weight: 3, share: 0.6, leases: 2 });
    expect(old).toMatchObject({ ended: 5, wait: undefined, success: undefined, running: 0 });
  });

  test("shares add up to the whole", () => {
    const rows = addonRows(status, history, [], "");
    expect(rows.reduce((sum, row) => sum + row.share, 0)).toBeCloseTo(1);
    expect(addonRows({ addons: {} }, [], [], "")).toEqual([]);
  });
});
