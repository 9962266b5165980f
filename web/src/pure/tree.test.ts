import { expect, test } from "vitest";
import { nested } from "./tree";

const node = (depth: number, label: string, state = "active", waiting_for: string | null = null) => ({ depth, label, state, age_ms: depth * 10, waiting_for });

test("depths become a tree", () => {
  const [root] = nested([node(0, "run"), node(1, "nursery", "completing", "its children"), node(2, "a"), node(2, "b"), node(1, "c")]);
  expect(root?.children.map(({ label }) => label)).toEqual(["nursery", "c"]);
  expect(root?.children[0]?.children.map(({ label }) => label)).toEqual(["a", "b"]);
});

test("siblings that are alike are one line, those that differ are not", () => {
  const many = Array.from({ length: 50 }, (_, n) => node(1, `#${n}`, "active", `job #${n + 1}`));
  const [root] = nested([node(0, "run"), ...many, node(1, "#99", "cancelling"), node(1, "#100"), node(2, "x")]);
  expect(root?.children.map(({ label, times, state }) => [label, times, state])).toEqual([["#", 50, "active"], ["#99", 1, "cancelling"], ["#100", 1, "active"]]);
});

test("a depth that was left out does not lose its nodes", () => {
  const roots = nested([node(0, "run"), node(3, "deep")]);
  expect(roots[0]?.children[0]?.label).toBe("deep");
  expect(nested([])).toEqual([]);
});
