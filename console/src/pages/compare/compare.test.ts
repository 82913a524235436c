import { describe, expect, it } from "vitest";
import type { Allocation, Job, JobMetrics } from "@/api/types";
import {
  type Compared,
  countCovered,
  findExtent,
  findFigures,
  findLine,
  findPauses,
  knownDirection,
  listNames,
  readDirections,
  slotHours,
} from "./compare";

function run(started_at: number, series: Record<string, [number, number, number | null][]>): Compared {
  const metrics: JobMetrics = {
    series: Object.entries(series).map(([name, points]) => ({
      name,
      source: "log",
      step: points.map(([step]) => step),
      epoch: points.map(() => 0),
      time: points.map(([, time]) => time),
      value: points.map(([, , value]) => value),
    })),
    steps: { step: [], epoch: [], view: [], time: [] },
  };
  return { job: { id: "j", started_at } as Job, metrics };
}

const one = run(100, {
  accuracy: [[1, 101, 0.5]],
  loss: [
    [1, 101, 4],
    [2, 103, null],
    [2, 104, 3],
  ],
});
const other = run(500, {
  "val loss": [[5, 505, 1]],
  accuracy: [
    [1, 501, 0.7],
    [2, 502, 0.6],
  ],
});

it("losses come first, then metrics that most jobs have", () => {
  expect(listNames([one, other])).toEqual(["loss", "val loss", "accuracy"]);
});

describe("findLine", () => {
  it("by step has each step once", () => {
    expect(findLine(one, "loss", "step")).toEqual({ times: [1, 2], values: [4, 3] });
  });
  it("by seconds starts at the start of the job", () => {
    expect(findLine(one, "loss", "seconds").times).toEqual([1, 3, 4]);
  });
  it("is empty for a metric that was not logged", () => {
    expect(findLine(other, "loss", "time")).toMatchObject({ times: [], values: [] });
  });
});

it("the extent covers all lines", () => {
  expect(findExtent([findLine(one, "accuracy", "seconds"), findLine(other, "accuracy", "seconds")])).toEqual([1, 2]);
  const [from, until] = findExtent([]);
  expect(until).toBeGreaterThan(from);
});

it("the best value is the lowest or the highest; without a direction there is none", () => {
  expect(findFigures(findLine(one, "loss", "step"), "lower")).toEqual({ last: 3, best: 3 });
  expect(findFigures(findLine(other, "accuracy", "step"), "higher")).toEqual({ last: 0.6, best: 0.7 });
  expect(findFigures(findLine(other, "accuracy", "step"), null)).toEqual({ last: 0.6, best: null });
  expect(findFigures({ times: [], values: [] }, "lower")).toEqual({ last: null, best: null });
});

it.each([
  ["lower", ["loss", "step_loss", "val_loss", "valLoss", "error rate", "Perplexity", "rmse"]],
  ["higher", ["accuracy", "val_acc", "top1", "macro F1", "AUC", "recall@10", "mAP"]],
  [null, ["lr", "learning_rate", "grad_norm", "epoch", "loss_scale", "loss weight", "mapper", "samples"]],
] as const)("the direction %s is known only of names that tell it", (direction, names) => {
  expect(names.map(knownDirection)).toEqual(names.map(() => direction));
});

it("the address keeps directions that a user chose", () => {
  const query = new URLSearchParams("best=lr:lower&best=a:b:higher&best=loss:none&best=x:upwards&best=y");
  expect([...readDirections(query)]).toEqual([
    ["lr", "lower"],
    ["a:b", "higher"],
    ["loss", null],
  ]);
});

it("a line breaks where the job held no slots, except over steps", () => {
  const held = [
    { since: 100, until: 102 },
    { since: 100, until: 101 },
    { since: 103.5, until: null },
  ];
  expect(findPauses(held)).toEqual([{ from: 102, until: 103.5, isKnown: true }]);
  const pauses = findPauses(held);
  expect(findLine(one, "loss", "seconds", pauses)).toMatchObject({ times: [1, 3, 3.5, 4], values: [4, null, null, 3] });
  expect(findLine(one, "loss", "step", pauses)).toEqual({ times: [1, 2], values: [4, 3] });
});

it("slot-hours include slots that are still held", () => {
  const held = [
    { since: 0, until: 3600 },
    { since: 1800, until: null },
  ] as Allocation[];
  expect(slotHours(held, 5400)).toBe(2);
});

it("a line through the points of others has gaps, so that each of them is visible", () => {
  const line = (...values: number[]) => ({ times: [1, 2, 3].slice(0, values.length), values });
  expect(countCovered([line(4, 3, 2), line(4, 3)]), "also where one of them ends earlier").toEqual([0, 1]);
  expect(countCovered([line(4, 3), line(4, 2), line(4, 3), line(4, 3), { times: [], values: [] }])).toEqual([
    0, 0, 1, 2, 0,
  ]);
});
