import { expect, test } from "vitest";
import { LogLines, ofAttempt, plain, search } from "./logLines";

test("lines that come in pieces are one", () => {
  const log = new LogLines();
  expect(log.add({ text: "one\ntw", next: 6, ended: false, times: [{ place: 0, at: "2026-01-01T00:00:00Z" }] })).toBe(true);
  log.add({ text: "o\nthräe\n", next: 15, ended: true, times: [{ place: 8, at: "2026-01-01T00:00:05Z" }] });
  expect(log.add({ text: "", next: 15, ended: true })).toBe(false);
  expect(log.shown.map(({ text, place }) => [text, place])).toEqual([["one", 0], ["two", 4], ["thräe", 8]]);
  expect(log.shown.map(({ at }) => new Date(at ?? 0).getUTCSeconds())).toEqual([0, 0, 5]);
  expect(log.whole).toBe("one\ntwo\nthräe\n");
  expect([log.next, log.ended]).toEqual([15, true]);
});

test("commands for a terminal are left out, and what was overwritten", () => {
  expect(plain("\u001b[31mred\u001b[0m and \u001b]0;title\u0007plain")).toBe("red and plain");
  expect(plain("10 %\r50 %\r100 %\r")).toBe("100 %");
  expect(plain("<script>alert(1)</script>")).toBe("<script>alert(1)</script>");
});

test("lines of an attempt, and lines with a text", () => {
  const lines = [{ place: 0, text: "Alpha", at: 1000 }, { place: 6, text: "beta", at: 5000 }, { place: 11, text: "gamma", at: null }];
  expect(ofAttempt(lines, 4000, 6000).map(({ text }) => text)).toEqual(["beta", "gamma"]);
  expect(search(lines, "AL")).toEqual([0]);
  expect(search(lines, "")).toEqual([]);
});
