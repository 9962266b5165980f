import { expect, test } from "vitest";
import { textParts } from "./textParts";

const ID = "019a3f42-0000-7000-8000-0123456789ab";

test("ids and times are found among words", () => {
  expect(textParts(`job ${ID} ends`)).toEqual([{ text: "job " }, { job: ID }, { text: " ends" }]);
  expect(textParts("Not before 2026-11-19T14:05:24.760312Z")).toEqual([{ text: "Not before " }, { at: Date.parse("2026-11-19T14:05:24.760Z") }]);
  expect(textParts("2026-11-19T14:05:24+01:00 comes")).toEqual([{ at: Date.parse("2026-11-19T13:05:24Z") }, { text: " comes" }]);
});

test("all else is text", () => {
  for (const text of ["", "2026-99-19T14:05:24Z", "2026-11-19", "<b>x</b>", `${ID.slice(1)}`]) expect(textParts(text)).toEqual(text === "" ? [] : [{ text }]);
});
