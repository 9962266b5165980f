import { expect, test } from "vitest";
import { rowsSeen } from "./Table";

test("only rows near the window are rendered", () => {
  expect(rowsSeen(0, 720, 36, 100_000)).toEqual([0, 28]);
  expect(rowsSeen(36_000, 720, 36, 100_000)).toEqual([992, 1028]);
  expect(rowsSeen(0, 720, 36, 3)).toEqual([0, 3]);
  expect(rowsSeen(72_000, 720, 36, 10)).toEqual([10, 10]);
});
