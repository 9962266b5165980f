import { expect, test } from "vitest";
import { ExactNumber, exact, parse, write } from "./json";

test("numbers that a double cannot hold keep their digits", () => {
  for (const text of ["18446744073709551615", "-9007199254740993", "0.1234567890123456789", "1e400", "123456789012345678901234567890.5"]) {
    expect(exact(text)).toBeInstanceOf(ExactNumber);
    expect(write(parse(text))).toBe(text);
  }
});

test("numbers that a double holds are numbers", () => {
  for (const [text, value] of [["0", 0], ["-12.50", -12.5], ["1e3", 1000], ["1.0E-2", 0.01], ["9007199254740992", 2 ** 53], ["0.1", 0.1], ["1e21", 1e21]] as const) {
    expect(exact(text)).toBe(value);
  }
});

test("everything else is as JSON.parse gives it", () => {
  const texts = ['{"a":[1,2,{"b":null}],"c":"\\u00e9\\n\\"x\\\\"}', " [ true , false ] ", '"😀"', "{}", "[]", '{"":0,"a":{"a":{}}}'];
  for (const text of texts) {
    expect(parse(text)).toEqual(JSON.parse(text));
    expect(JSON.parse(write(parse(text), 2))).toEqual(JSON.parse(text));
  }
});

test("what is no JSON is refused with its place", () => {
  for (const text of ["", "{", "[1,]", '{"a" 1}', "01", "1 2", '"\n"', '"\\x"', "nul", "+1", "[1", '{"a":1,}', "\u00a01"]) {
    expect(() => parse(text), text).toThrow(/at character/);
    expect(() => JSON.parse(text), text).toThrow();
  }
});

test("a key named __proto__ is a key", () => {
  const value = parse('{"__proto__":{"polluted":1}}') as Record<string, unknown>;
  expect(Object.keys(value)).toEqual(["__proto__"]);
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

test("deep nesting is refused, not a crash", () => {
  expect(() => parse("[".repeat(100_000))).toThrow(/too deep/);
});
