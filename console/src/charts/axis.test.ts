// @vitest-environment jsdom
import { expect, it, vi } from "vitest";

vi.hoisted(() => {
  // The library of charts asks for it as soon as it is there.
  window.matchMedia ??= (() => ({ addEventListener: () => {}, removeEventListener: () => {} })) as never;
});

import { findDots, nameChart, sayTimes } from "./chart";
import { chooseScale } from "./scale";

it("a time stands at an axis once, however close its splits are", () => {
  const told = sayTimes(null, [1000, 1000.25, 1000.5, 1000.75, 1001], 0, 0, 0.25);
  expect(told.filter(Boolean)).toHaveLength(2);
  expect(new Set(told.filter(Boolean)).size).toBe(2);
  expect(sayTimes(null, [1000, 1005], 0, 0, 5).every(Boolean)).toBe(true);
});

it("a chart that has no logarithm of its values says that it is linear", () => {
  expect(chooseScale("loss", true, [[1, null, 0.1]])).toEqual({ title: "loss", isLog: true });
  expect(chooseScale("reward", true, [[1], [0]])).toEqual({
    title: "reward (linear: it has values ≤ 0)",
    isLog: false,
  });
  expect(chooseScale("reward", false, [[-1]])).toEqual({ title: "reward", isLog: false });
});

it("few points are dots, and of many only those without neighbours", () => {
  const dots = (values: (number | null)[]) => findDots({ data: [[], values] } as never, 1);
  expect(dots([1, null, 2, 2])).toEqual([0, 2, 3]);
  expect(dots([...Array(30).fill(1), null, 5, null, 6, 6])).toEqual([31]);
});

it("a chart of several lines has its unit in its heading, because no value beside it does", () => {
  expect(nameChart("Memory", " GB", 2)).toBe("Memory (GB)");
  expect(nameChart("Memory", " GB", 1)).toBe("Memory");
  expect(nameChart("CPU cores", "", 4)).toBe("CPU cores");
});
