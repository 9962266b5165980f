import { expect, test } from "vitest";
import { instant, relative, shortSpan, shortTime, span } from "./time";

test("a span has at most two units, and none that is noise", () => {
  const wanted: [number, string][] = [[0, "0 ms"], [0.05, "50 ms"], [0.44, "0.4 s"], [9.96, "10 s"], [59.6, "1 min"], [200, "3 min 20 s"], [3599.9, "1 h"], [3661, "1 h 1 min"], [86_399, "1 d"], [90_000, "1 d 1 h"], [-5, "−5 s"]];
  for (const [seconds, text] of wanted) expect(span(seconds), String(seconds)).toBe(text);
});

test("times before and after now", () => {
  expect(relative(0, 500)).toBe("now");
  expect(relative(0, 3_600_000 * 2)).toBe("2 h ago");
  expect(relative(90_000, 0)).toBe("in 1 min");
});

test("short spans round down, as ages do", () => {
  expect([5, 119, 7199, 172_000].map(shortSpan)).toEqual(["5s", "1m", "1h", "1d"]);
});

test("what is no time is no instant", () => {
  expect(instant("2026-11-19T00:00:00Z")).toBe(Date.UTC(2026, 10, 19));
  expect([instant(null), instant(""), instant("soon")]).toEqual([null, null, null]);
});

test("a time of another day has its date", () => {
  const at = (day: number, hour: number) => new Date(2026, 10, day, hour, 5).getTime();
  expect(shortTime(at(19, 14), at(19, 1))).toBe("14:05");
  expect(shortTime(at(20, 0), at(19, 23))).toBe("2026-11-20 00:05");
});
