import { describe, expect, test } from "vitest";
import { capacitySegments, capacityText } from "./capacity";

const kinds = (input: Parameters<typeof capacitySegments>[0]): Record<string, number> =>
  Object.fromEntries(capacitySegments(input).map((segment) => [segment.kind, segment.units]));

describe("the capacity bar", () => {
  test("divides the units of the machine", () => {
    expect(kinds({ capacity: 65, used: 40, reserved: 15 })).toEqual({ used: 25, reserved: 15, free: 25, withheld: 35 });
    expect(kinds({ capacity: 100, used: 0 })).toEqual({ free: 100 });
    expect(kinds({ capacity: 0, used: 0 })).toEqual({ withheld: 100 });
  });

  test("shows what is above a capacity that shrank while jobs run", () => {
    expect(kinds({ capacity: 30, used: 50, reserved: 10 })).toEqual({ used: 30, over: 20, withheld: 50 });
    expect(kinds({ capacity: 45, used: 50, reserved: 10 })).toEqual({ used: 40, reserved: 5, over: 5, withheld: 50 });
  });

  test("always fills the whole bar without a gap", () => {
    for (let capacity = 0; capacity <= 100; capacity += 7) {
      for (let used = 0; used <= 140; used += 11) {
        for (let reserved = 0; reserved <= used; reserved += 13) {
          let at = 0;
          for (const segment of capacitySegments({ capacity, used, reserved })) {
            expect(segment.from).toBeCloseTo(at);
            expect(segment.length).toBeGreaterThan(0);
            at += segment.length;
          }
          expect(at).toBeCloseTo(100);
        }
      }
    }
  });

  test("can be read aloud", () => {
    expect(capacityText({ capacity: 65, used: 40, reserved: 15 })).toBe(
      "25 of 65 units used, 15 reserved, 25 free, 35 withheld because of the load",
    );
    expect(capacityText({ capacity: 100, used: 0 })).toBe("0 of 100 units used, 100 free");
  });
});
