// @vitest-environment jsdom
import { expect, it, vi } from "vitest";

vi.hoisted(() => {
  // The library of charts asks for it as soon as it is there.
  window.matchMedia ??= (() => ({ addEventListener: () => {}, removeEventListener: () => {} })) as never;
});

import { sayTimes } from "./chart";

it("a time stands at an axis once, however close its splits are", () => {
  const told = sayTimes(null, [1000, 1000.25, 1000.5, 1000.75, 1001], 0, 0, 0.25);
  expect(told.filter(Boolean)).toHaveLength(2);
  expect(new Set(told.filter(Boolean)).size).toBe(2);
  expect(sayTimes(null, [1000, 1005], 0, 0, 5).every(Boolean)).toBe(true);
});
