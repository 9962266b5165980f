// JSON that keeps what was written. A number that a double cannot hold is kept as its digits: a payload's 2^64 must not be
// shown as 18446744073709552000. Everything else is as JSON.parse gives it.

/** A number that JavaScript cannot hold, by its digits. */
export class ExactNumber {
  constructor(readonly text: string) {}
  toString(): string {
    return this.text;
  }
  /** The nearest double, for code that wants one. */
  valueOf(): number {
    return Number(this.text);
  }
}

export type Json = null | boolean | number | string | ExactNumber | Json[] | { [key: string]: Json };

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPES: Record<string, string> = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const MAX_DEPTH = 2000;

/** Returns the number if a double prints the same value, else its digits. */
export function exact(text: string): number | ExactNumber {
  const value = Number(text);
  // -0 has no other digits to lose, and stays what it is.
  if (text === "-0") return value;
  return Number.isFinite(value) && canonical(text) === canonical(String(value)) ? value : new ExactNumber(text);
}

/** The digits without a point and zeros at the ends, and the power of ten that they count. */
function canonical(text: string): string {
  const [mantissa = "", power = "0"] = text.toLowerCase().split("e");
  const negative = mantissa.startsWith("-");
  const [whole = "", fraction = ""] = mantissa.replace("-", "").split(".");
  const all = (whole + fraction).replace(/^0+/, "");
  const digits = all.replace(/0+$/, "");
  if (digits === "") return "0";
  return `${negative ? "-" : ""}${digits}e${Number(power) - fraction.length + (all.length - digits.length)}`;
}

/** Reads JSON. Throws a SyntaxError that names the place. */
export function parse(text: string): Json {
  let at = 0;

  const fail = (what: string): never => {
    throw new SyntaxError(`${what} at character ${at}`);
  };
  const space = () => {
    for (;;) {
      const code = text.charCodeAt(at);
      if (code !== 32 && code !== 10 && code !== 13 && code !== 9) return;
      at++;
    }
  };
  const word = <T extends Json>(letters: string, value: T): T => {
    if (!text.startsWith(letters, at)) fail("unexpected character");
    at += letters.length;
    return value;
  };
  const string = (): string => {
    at++;
    let out = "";
    for (;;) {
      PLAIN.lastIndex = at;
      const plain = PLAIN.exec(text)?.[0] ?? "";
      out += plain;
      at += plain.length;
      const next = text[at];
      if (next === '"') {
        at++;
        return out;
      }
      if (next !== "\\") fail(next === undefined ? "the text ends inside a string" : "control character in a string");
      const escape = text[at + 1] ?? "";
      if (escape === "u") {
        const hex = text.slice(at + 2, at + 6);
        if (!/^[0-9a-fA-F]{4}$/.test(hex)) fail("wrong escape");
        out += String.fromCharCode(Number.parseInt(hex, 16));
        at += 6;
      } else {
        out += ESCAPES[escape] ?? fail("wrong escape");
        at += 2;
      }
    }
  };
  const value = (depth: number): Json => {
    if (depth > MAX_DEPTH) fail("nested too deep");
    space();
    const next = text[at];
    switch (next) {
      case "{": {
        const object: { [key: string]: Json } = {};
        at++;
        space();
        if (text[at] === "}") return word("}", object);
        for (;;) {
          space();
          if (text[at] !== '"') fail("a key is missing");
          const key = string();
          space();
          if (text[at] !== ":") fail("a colon is missing");
          at++;
          // Not by assignment: "__proto__" is a key like others.
          Object.defineProperty(object, key, { value: value(depth + 1), enumerable: true, writable: true, configurable: true });
          space();
          if (text[at] === ",") at++;
          else if (text[at] === "}") return word("}", object);
          else fail("a comma is missing");
        }
      }
      // falls through: the loop above returns or throws
      case "[": {
        const list: Json[] = [];
        at++;
        space();
        if (text[at] === "]") return word("]", list);
        for (;;) {
          list.push(value(depth + 1));
          space();
          if (text[at] === ",") at++;
          else if (text[at] === "]") return word("]", list);
          else fail("a comma is missing");
        }
      }
      // falls through: the loop above returns or throws
      case '"':
        return string();
      case "t":
        return word("true", true);
      case "f":
        return word("false", false);
      case "n":
        return word("null", null);
      default: {
        NUMBER.lastIndex = at;
        const digits = NUMBER.exec(text)?.[0];
        if (digits === undefined) return fail(next === undefined ? "the text ends too early" : "unexpected character");
        at += digits.length;
        return exact(digits);
      }
    }
  };

  const all = value(0);
  space();
  if (at < text.length) fail("unexpected character after the end");
  return all;
}

/** Writes JSON, exact numbers with all their digits. */
export function write(value: Json, indent = 0): string {
  const pad = (depth: number) => (indent ? `\n${" ".repeat(indent * depth)}` : "");
  const one = (part: Json, depth: number): string => {
    if (part instanceof ExactNumber) return part.text;
    if (Array.isArray(part)) {
      if (!part.length) return "[]";
      return `[${part.map((item) => pad(depth + 1) + one(item, depth + 1)).join(",")}${pad(depth)}]`;
    }
    if (part !== null && typeof part === "object") {
      const entries = Object.entries(part);
      if (!entries.length) return "{}";
      const colon = indent ? ": " : ":";
      return `{${entries.map(([key, item]) => pad(depth + 1) + JSON.stringify(key) + colon + one(item, depth + 1)).join(",")}${pad(depth)}}`;
    }
    return JSON.stringify(part);
  };
  return one(value, 0);
}
