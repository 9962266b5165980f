import { describe, expect, test } from "vitest";
import { changedFields, readNumber, readText, readValue, typed, writeValue, written } from "./policy-text";

const TEXT = `# our machine
[quiet]
quiet_max = 2.0 # low
enter_after = "1m"
windows = ["22:00-06:00 Europe/Berlin"] # "nights" # only

[busy.cpu]
low = 0.1
high = 0.9

[addons."our.photos"]
weight = 2
`;

describe("the policy's text", () => {
  test("values are found in their section", () => {
    expect(readNumber(TEXT, "quiet.quiet_max")).toBe(2);
    expect(readText(TEXT, "quiet.enter_after")).toBe("1m");
    expect(readValue(TEXT, "quiet.windows")).toBe('["22:00-06:00 Europe/Berlin"]');
    expect(readNumber(TEXT, "busy.cpu.high")).toBe(0.9);
    expect(readNumber(TEXT, "addons.our.photos.weight")).toBe(2);
    expect(readValue(TEXT, "quiet.low")).toBeUndefined();
    expect(readNumber(TEXT, "quiet.enter_after")).toBeUndefined();
  });

  test("a change leaves every other character alone", () => {
    const changed = writeValue(TEXT, "quiet.quiet_max", "3.5");
    expect(changed).toBe(TEXT.replace("2.0", "3.5"));
    expect(writeValue(changed, "quiet.quiet_max", "2.0")).toBe(TEXT);
  });

  test("a value that is not set yet is added to its section", () => {
    const changed = writeValue(TEXT, "quiet.normal_max", "6");
    expect(changed.split("\n").slice(4, 7)).toEqual(['windows = ["22:00-06:00 Europe/Berlin"] # "nights" # only', "normal_max = 6", ""]);
    expect(readNumber(changed, "quiet.normal_max")).toBe(6);
    const added = writeValue(TEXT, "caps.leases", "3");
    expect(added.endsWith("\n\n[caps]\nleases = 3\n")).toBe(true);
    expect(writeValue("", "caps.leases", "3")).toBe("[caps]\nleases = 3\n");
  });

  test("what is typed becomes TOML and back", () => {
    expect(written("duration", " 5m ")).toBe('"5m"');
    expect(written("list", "22:00-06:00 UTC\n\nSat 00:00-24:00 UTC")).toBe('["22:00-06:00 UTC", "Sat 00:00-24:00 UTC"]');
    expect(typed("list", '["a b", "c"]')).toBe("a b\nc");
    expect(typed("duration", '"5m"')).toBe("5m");
    expect(typed("number", "2.5")).toBe("2.5");
    // No quote ends the string early.
    expect(written("text", 'a"\nb')).toBe('"a\\"\\nb"');
  });

  test("changed fields are named", () => {
    expect(changedFields(TEXT, writeValue(TEXT, "quiet.quiet_max", "1")).map((field) => field.path)).toEqual(["quiet.quiet_max"]);
    expect(changedFields(TEXT, TEXT)).toEqual([]);
  });
});
