import { expect, test } from "vitest";
import { each } from "./bulk";

test("an action on some jobs goes on after a failure, and tells the first", async () => {
  let together = 0;
  let most = 0;
  const seen: string[] = [];
  const { done, error } = await each(["a", "b", "c", "d", "e"], async (id) => {
    most = Math.max(most, ++together);
    await Promise.resolve();
    together--;
    seen.push(id);
    if (id === "b" || id === "d") throw new Error(id);
  }, 2);
  expect(seen.sort()).toEqual(["a", "b", "c", "d", "e"]);
  expect([done, (error as Error).message, most]).toEqual([3, "b", 2]);
});
