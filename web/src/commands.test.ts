import { readFileSync, readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { type Line, commands, quoted } from "./commands";
import { type ApiFilter, apiQuery, parseFilter } from "./filter";

/** Arguments for those that have some; a command that is added without is not accepted by the compiler. */
const SAMPLES: { [K in keyof typeof commands as Parameters<(typeof commands)[K]> extends [] ? never : K]: Parameters<(typeof commands)[K]>[] } = {
  show: [["019a3f42-0000-7000-8000-0123456789ab"]],
  list: ["", "state:failed", "state:waiting addon:photos type:index", 'tag:"two words" quarantined red fox', "id:89ab", "019a3f42", "it's", "state:failed ended:2026-01-02T03:04:05.000Z", '"a:b" c', 'tag:"a:b\'c"', "state:failed addon:photos 019a3f42"].map((text) => [parseFilter(text).filter]),
};

/** A command line; with the query that `ls` must make of its words. */
interface Shown {
  line: Line;
  query?: ApiFilter;
}

const all = Object.entries(commands).flatMap(([name, make]): Shown[] => {
  const samples: readonly unknown[][] = SAMPLES[name as keyof typeof SAMPLES] ?? [[]];
  return samples.map((of) => {
    const line = (make as (...of: unknown[]) => Line)(...of);
    return name === "list" && line.startsWith("jobtree ls") ? { line, query: apiQuery(of[0] as Parameters<typeof apiQuery>[0]) } : { line };
  });
});

test("the list that the command's own test parses has every command line", async () => {
  // `npx vitest run -u` writes it anew.
  await expect(`${JSON.stringify(all, null, 2)}\n`).toMatchFileSnapshot("../commands.json");
});

test("no command line is written anywhere else", () => {
  const folder = new URL(".", import.meta.url).pathname;
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => /(?<!\.test)\.tsx?$/.test(name) && name !== "commands.ts" && name !== "api-types.ts");
  expect(files.length).toBeGreaterThan(80);
  const found = files.flatMap((name) => {
    const code = readFileSync(folder + name, "utf8").split("\n").filter((row) => !/^\s*(\/\/|\*|\/\*)/.test(row));
    return code.filter((row) => /\bjobtree [a-z-]/.test(row)).map((row) => `${name}: ${row.trim()}`);
  });
  expect(found).toEqual([]);
});

test("words are quoted for the shell", () => {
  expect(["a-b:c", "two words", "it's", "$(x)", ""].map(quoted)).toEqual(["a-b:c", "'two words'", "'it'\\''s'", "'$(x)'", "''"]);
});
