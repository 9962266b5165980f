import { expect, test } from "vitest";
import { codeOf, nextOf } from "./signIn";

const code = "0123456789abcdef".repeat(4);

test("a code is found in a link, and nowhere else", () => {
  expect(codeOf(`#${code}`)).toBe(code);
  expect(codeOf(`  http://127.0.0.1:7717/enter#${code}\n`)).toBe(code);
  expect(codeOf(code)).toBe(code);
  for (const none of ["", "#", "#short", code.slice(1), `x${code}`, `${code}#`, code.toUpperCase(), `?${code}`]) expect(codeOf(none)).toBeNull();
});

test("after signing in there is nowhere to go but here", () => {
  expect(nextOf(null)).toBe("/");
  expect(nextOf("/jobs?q=state:FAILED")).toBe("/jobs?q=state:FAILED");
  expect(nextOf("/enter?next=/enter")).toBe("/");
  expect(nextOf("/entered")).toBe("/entered");
  expect(nextOf("//evil.example/")).toBe("/evil.example/");
  expect(nextOf("\\\\evil.example/")).toBe("/evil.example/");
  expect(nextOf("https://evil.example/")).toBe("/https://evil.example/");
  expect(nextOf("javascript:alert(1)")).toBe("/javascript:alert(1)");
});
