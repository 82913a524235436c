import { describe, expect, it } from "vitest";
import {
  addSteps,
  cutSteps,
  drawLayer,
  drawSteps,
  findCountTicks,
  findShared,
  findSpans,
  findTimeTicks,
  makeScale,
  measureArea,
  spreadLabels,
  stackSteps,
  valueAt,
} from "./timeline-geometry";

const anna = { times: [10, 20, 40], values: [4, 2, 0] };
const ben = { times: [20, 40, 60], values: [2, 4, 0] };

describe("step lines", () => {
  it("have a value from each of their times on, and none before the first", () => {
    expect([9.9, 10, 19.9, 20, 39, 40, 99].map((time) => valueAt(anna, time))).toEqual([0, 4, 4, 2, 2, 0, 0]);
    expect(valueAt({ times: [], values: [] }, 5)).toBe(0);
  });

  it("are cut to a stretch, beginning with the value that they had before", () => {
    expect(cutSteps(anna, 15, 40)).toEqual({ times: [15, 20], values: [4, 2] });
    expect(cutSteps(anna, 0, 15)).toEqual({ times: [0, 10], values: [0, 4] });
  });

  it("are drawn flat until they change", () => {
    const x = makeScale(0, 100, 0, 100);
    const y = makeScale(0, 4, 40, 0);
    expect(drawSteps(cutSteps(anna, 0, 100), 100, x, y)).toBe("M0 40H10V0H20V20H40V40H100");
    expect(drawSteps({ times: [0, 5], values: [1, 1] }, 10, x, y)).toBe("M0 30H10");
  });

  it("become bars where there is something", () => {
    expect(findSpans(anna, 0, 30)).toEqual([
      { from: 10, to: 20, value: 4 },
      { from: 20, to: 30, value: 2 },
    ]);
    expect(findSpans({ times: [0, 5], values: [1, 1] }, 0, 9)).toEqual([{ from: 0, to: 9, value: 1 }]);
  });
});

describe("many lines", () => {
  it("are added to one", () => {
    expect(addSteps([anna, ben])).toEqual({ times: [10, 20, 40, 60], values: [4, 4, 4, 0] });
    expect(addSteps([])).toEqual({ times: [], values: [] });
  });

  it("are measured by what lies below them", () => {
    expect(measureArea(anna, 0, 100)).toBe(4 * 10 + 2 * 20);
    expect(measureArea(anna, 15, 20)).toBe(20);
  });
});

describe("stacked", () => {
  it("each layer begins where the one below it ends", () => {
    const [below, above] = stackSteps([anna, ben], 0, 60);
    expect(below?.times).toEqual([0, 10, 20, 40]);
    expect(below?.upper).toEqual([0, 4, 2, 0]);
    expect(above?.lower).toEqual([0, 4, 2, 0]);
    expect(above?.upper).toEqual([0, 4, 4, 4]);
  });

  it("a layer is drawn there above and back below", () => {
    const x = makeScale(0, 10, 0, 10);
    const y = makeScale(0, 4, 4, 0);
    const layer = { times: [0, 5], lower: [1, 0], upper: [2, 4] };
    expect(drawLayer(layer, 10, x, y)).toBe("M0 2H5V0H10V4H5V3H0Z");
  });
});

describe("axes", () => {
  it("have round times, on the clock of the wall", () => {
    expect(findTimeTicks(3, 63, 6)).toEqual([10, 20, 30, 40, 50, 60]);
    expect(findTimeTicks(0, 7 * 86400, 4).length).toBe(4);
    expect(findTimeTicks(0, 86400, 2, 3600)).toEqual([39600, 82800]);
    expect(findTimeTicks(5, 5, 4)).toEqual([]);
  });

  it("have whole counts", () => {
    expect(findCountTicks(4)).toEqual([0, 1, 2, 3, 4]);
    expect(findCountTicks(64)).toEqual([0, 20, 40, 60]);
    expect(findCountTicks(0)).toEqual([0]);
  });

  it("labels do not cover one another and stay inside", () => {
    expect(spreadLabels([10, 12, 50], 10, 0, 100)).toEqual([10, 20, 50]);
    expect(spreadLabels([98, 99], 10, 0, 100)).toEqual([90, 100]);
    expect(spreadLabels([50, 10], 10, 0, 100)).toEqual([50, 10]);
  });
});

it("lines share stretches in which they have the same value", () => {
  const lines = [
    { times: [0, 10, 30], values: [4, 2, 0] },
    { times: [10, 20], values: [2, 3] },
    { times: [0], values: [0] },
  ];
  expect(findShared(lines, 0, 40)).toEqual([
    [
      { from: 0, to: 10, value: 4, place: 0, num: 1 },
      { from: 10, to: 20, value: 2, place: 0, num: 2 },
      { from: 20, to: 30, value: 2, place: 0, num: 1 },
    ],
    [
      { from: 10, to: 20, value: 2, place: 1, num: 2 },
      { from: 20, to: 40, value: 3, place: 0, num: 1 },
    ],
    [],
  ]);
});
