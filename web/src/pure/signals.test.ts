import { describe, expect, test } from "vitest";
import { readSignals } from "./signals";

describe("the signals", () => {
  test("each has its value, its bound and a unit", () => {
    const [psi] = readSignals({ foreign_cpu: 0.5, own_cpu: 0, psi_io: 30 }, "", 2);
    expect(psi).toMatchObject({ name: "CPU used by other programs", value: "50 %", bound: "26 %", high: true, level: 5 });
    expect(readSignals({ psi_io: 16 }, "", 2)).toMatchObject([{ value: "16 %", bound: "16 %", level: 2, high: false }]);
    expect(readSignals({ psi_io: 16.1 }, "", 2)).toMatchObject([{ high: true }]);
  });

  test("the policy's ranges count", () => {
    const policy = "[busy.psi_io]\nlow = 0\nhigh = 10\n";
    expect(readSignals({ psi_io: 5 }, policy, 2)).toMatchObject([{ level: 5, bound: "2 %", high: true }]);
  });

  test("of what is scarce, less is worse", () => {
    expect(readSignals({ memory_available: 0.1 }, "", 2)).toMatchObject([{ lack: true, high: true, bound: "17 %", value: "10 %" }]);
    expect(readSignals({ memory_available: 0.9 }, "", 2)).toMatchObject([{ lack: true, high: false, level: 0 }]);
  });

  test("pressure that our own jobs make does not count", () => {
    const ours = readSignals({ foreign_cpu: 0.1, own_cpu: 0.9, psi_cpu: 80 }, "", 2).find((one) => one.key === "psi_cpu");
    expect(ours).toMatchObject({ value: "8 %", high: false });
  });

  test("a signal without a weight is never what is too high", () => {
    expect(readSignals({ network: 1 }, "", 2)).toMatchObject([{ level: 10, high: false }]);
  });

  test("what was not measured is not listed; the worst is first", () => {
    const keys = readSignals({ foreign_cpu: 0, psi_io: 40, psi_memory: 29, disk_busy: null }, "", 2).map((one) => one.key);
    expect(keys).toEqual(["psi_memory", "psi_io", "cpu"]);
  });
});
