import { expect, test } from "vitest";
import { href, match, placeOf, queryText } from "./router";

test("a path below a prefix is seen without it", () => {
  expect(placeOf("/ops/queue/jobs/1", "?q=x", "/ops/queue/").path).toBe("/jobs/1");
  expect(placeOf("/ops/queue/", "", "/ops/queue/").path).toBe("/");
  expect(placeOf("/jobs/", "", "/").path).toBe("/jobs");
});

test("patterns give the values of a path", () => {
  expect(match("/jobs/:id", "/jobs/a%20b")).toEqual({ id: "a b" });
  expect(match("/jobs/:id", "/jobs")).toBeNull();
  expect(match("/jobs", "/leases")).toBeNull();
  expect(match("/jobs/:id", "/jobs/%E0%A4%A")).toBeNull();
});

test("a query leaves out what is absent, and stays readable", () => {
  expect(queryText({ q: "state:FAILED tag:a,b", empty: "", none: undefined, many: ["1", "2"] })).toBe("q=state:FAILED+tag:a,b&many=1&many=2");
  expect(href("/jobs", { q: "a&b" })).toBe("/jobs?q=a%26b");
});
