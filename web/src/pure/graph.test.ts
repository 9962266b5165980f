import { expect, test } from "vitest";
import { layered } from "./graph";

test("each job stands right of what it depends on", () => {
  const placed = new Map(layered([{ id: "d", after: ["b", "c"] }, { id: "b", after: ["a"] }, { id: "c", after: ["a", "gone"] }, { id: "a", after: [] }]).map((one) => [one.id, one]));
  expect([..."abcd"].map((id) => placed.get(id)?.column)).toEqual([0, 1, 1, 2]);
  expect(new Set([placed.get("b")?.row, placed.get("c")?.row])).toEqual(new Set([0, 1]));
});

test("a cycle ends", () => {
  expect(layered([{ id: "a", after: ["b"] }, { id: "b", after: ["a"] }])).toHaveLength(2);
});
