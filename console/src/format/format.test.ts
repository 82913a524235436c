import { describe, expect, it } from "vitest";
import { countOf, formatBytes, formatCount, formatOrdinal, formatShare, formatShort, formatValue } from "./numbers";
import { formatAgo, formatDuration, formatSince, formatTime } from "./time";

describe("formatDuration", () => {
  it.each([
    [0, "0 s"],
    [0.4, "0 s"],
    [41.9, "41 s"],
    [60, "1 min"],
    [200, "3 min 20 s"],
    [3599, "59 min 59 s"],
    [7500, "2 h 5 min"],
    [86400, "1 d"],
    [356400, "4 d 3 h"],
    [-3, "0 s"],
    [null, "–"],
    [Number.POSITIVE_INFINITY, "–"],
  ])("%s is %s", (duration_s, want) => {
    expect(formatDuration(duration_s)).toBe(want);
  });
});

describe("formatAgo", () => {
  it.each([
    [1000, "just now"],
    [970, "30 s ago"],
    [800, "3 min ago"],
    [1000 - 7200, "2 h ago"],
    [1000 - 86400 * 3, "3 days ago"],
    [1600, "in 10 min"],
  ])("%s is %s", (time, want) => {
    expect(formatAgo(time, 1000)).toBe(want);
  });
});

it("an event in the past is never shown as in the future if clocks differ by minutes", () => {
  expect([1007, 1060, 1300].map((time) => formatSince(time, 1000))).toEqual(["just now", "just now", "just now"]);
  expect(formatSince(970, 1000)).toBe("30 s ago");
  expect(formatSince(1000 + 7200, 1000)).toBe("in 2 h");
});

describe("formatTime", () => {
  const noon = new Date(2026, 10, 3, 12, 0, 0).getTime() / 1000;
  it("omits today's date", () => {
    expect(formatTime(noon + 5, noon)).toBe("12:00:05");
  });
  it("includes another day, and another year", () => {
    expect(formatTime(noon - 86400, noon)).toBe("2 Nov, 12:00");
    expect(formatTime(noon - 400 * 86400, noon)).toContain("2025");
  });
});

describe("numbers", () => {
  it.each([
    [0, "0"],
    [0.04123456, "0.04123"],
    [1.5, "1.5"],
    [123.456, "123.5"],
    [1234.4, "1\u202f234"],
    [-2.5, "−2.5"],
    [0.00000013, "1.30e-7"],
    [1e12, "1.00e12"],
    [Number.NaN, "not a number"],
    [Number.NEGATIVE_INFINITY, "−∞"],
    [null, "–"],
  ])("the value %s is %s", (value, want) => {
    expect(formatValue(value)).toBe(want);
  });
  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1023, "1023 B"],
    [1024, "1 KiB"],
    [3_420_000, "3.26 MiB"],
    [1_048_300, "1 MiB"],
  ])("%s bytes are %s", (numBytes, want) => {
    expect(formatBytes(numBytes)).toBe(want);
  });
  it("counts", () => {
    expect(formatCount(1234567)).toBe("1\u202f234\u202f567");
    expect(countOf(1, "job")).toBe("1 job");
    expect(countOf(3, "job")).toBe("3 jobs");
    expect(formatShare(0.424)).toBe("42 %");
  });
});

it("short values fit into a narrow column", () => {
  expect([0.000_38, 0.0412, 1.234, 0, -0.0038, null, Number.NaN].map(formatShort)).toEqual([
    ...["3.8e-4", "0.0412", "1.23", "0", "−3.8e-3", "–", "not a number"],
  ]);
});

it("places in an order have their endings", () => {
  expect([1, 2, 3, 4, 11, 12, 13, 21, 36, 103, 112].map(formatOrdinal)).toEqual(
    "1st 2nd 3rd 4th 11th 12th 13th 21st 36th 103rd 112th".split(" "),
  );
});
