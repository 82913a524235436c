import { describe, expect, it } from "vitest";
import type { JobMetrics, TrainingEvent } from "@/api/types";
import {
  findMarks,
  findThroughput,
  findWorkers,
  goesOn,
  mergeMetrics,
  placeAt,
  smooth,
  stepToAskAfter,
} from "./series";

function metrics(steps: number[], series: Record<string, number[]>): JobMetrics {
  const zeros = (list: number[]) => list.map(() => 0);
  return {
    series: Object.entries(series).map(([name, step]) => ({
      name,
      source: "log" as const,
      step,
      epoch: zeros(step),
      time: step,
      value: step.map((each) => each * 10),
    })),
    steps: { step: steps, epoch: zeros(steps), view: zeros(steps), time: steps },
  };
}

let seq = 0;
function event(kind: string, time: number, more: Partial<TrainingEvent> = {}): TrainingEvent {
  seq += 1;
  return { seq, time, kind, level: "info", reason: kind, worker: null, view: null, step: null, detail: null, ...more };
}

describe("mergeMetrics", () => {
  it("puts later points behind, and each once", () => {
    const merged = mergeMetrics(metrics([1, 2, 3], { loss: [1, 3] }), metrics([3, 4], { loss: [3, 4], accuracy: [4] }));
    expect(merged.steps.step).toEqual([1, 2, 3, 4]);
    expect(merged.series.map((series) => [series.name, series.step])).toEqual([
      ["loss", [1, 3, 4]],
      ["accuracy", [4]],
    ]);
  });
  it("finds what was logged at the last step after it was asked for", () => {
    const known = metrics([1, 2, 64], { loss: [1, 64] });
    expect(stepToAskAfter(known)).toBe(63);
    const merged = mergeMetrics(known, metrics([64], { loss: [64], accuracy: [64] }));
    expect(merged.series.find((series) => series.name === "accuracy")?.step).toEqual([64]);
    expect(merged.steps.step).toEqual([1, 2, 64]);
  });
  it("does not go on when the program begins to log its own loss, because the losses of steps get another name", () => {
    const known: JobMetrics = metrics([1, 2], { loss: [1, 2] });
    const ofSteps = { ...known, series: known.series.map((each) => ({ ...each, source: "backward" as const })) };
    expect(goesOn(ofSteps, { ...ofSteps, steps: metrics([2, 3], {}).steps })).toBe(true);
    expect(goesOn(ofSteps, metrics([2, 3], { loss: [3] }))).toBe(false);
  });
  it("is the same where nothing is new", () => {
    const known = metrics([1], { loss: [1] });
    expect(mergeMetrics(known, metrics([], {})).steps).toBe(known.steps);
    expect(stepToAskAfter(metrics([], {}))).toBe(0);
  });
});

it("throughput is steps by seconds, whatever the pace", () => {
  const time = Array.from({ length: 100 }, (_, place) => (place < 50 ? place / 10 : 5 + (place - 50) / 2));
  const line = findThroughput({ step: time.map((_, place) => place), time });
  expect(line.values[0]).toBeCloseTo(10, 0);
  expect(line.values.at(-1)).toBeCloseTo(2, 0);
  expect(findThroughput({ step: [1], time: [1] }).values).toEqual([]);
});

describe("findWorkers", () => {
  it("counts who joined each view, and none after the end", () => {
    const line = findWorkers([
      event("joined", 10, { view: 1, worker: 0 }),
      event("joined", 10.1, { view: 1, worker: 1 }),
      event("scaled", 20),
      event("joined", 21, { view: 2, worker: 0 }),
      event("failed", 25, { worker: 0, view: 2 }),
      event("finished", 30),
      event("stopped", 31),
    ]);
    expect(line).toEqual({ times: [10, 21, 30], values: [2, 1, 0] });
  });
  it("restarts with the next attempt, though its views have the same numbers", () => {
    const line = findWorkers([
      event("joined", 1, { view: 1, worker: 0 }),
      event("stopped", 2),
      event("joined", 3, { view: 1, worker: 0 }),
    ]);
    expect(line.values).toEqual([1, 0, 1]);
  });
});

it("marks are resizes, deaths and checkpoints, with their reasons", () => {
  const marks = findMarks([
    event("scaled", 1, { reason: "4 -> 2 workers: bob came" }),
    event("warm", 2),
    event("died", 3),
    event("differed", 3.5),
  ]);
  expect(marks.map((mark) => [mark.tone, mark.time])).toEqual([
    ["resize", 1],
    ["death", 3],
    ["death", 3.5],
  ]);
  expect(marks[0]?.reason).toBe("4 → 2 workers: bob came");
});

it("placeAt finds the last one that is not later", () => {
  expect([0, 1, 1.5, 4, 9].map((time) => placeAt([1, 2, 4], time))).toEqual([-1, 0, 0, 2, 2]);
});

it("smooth keeps gaps and begins at the first value", () => {
  expect(smooth([4, null, 4, 4], 0.9)).toEqual([expect.closeTo(4), null, expect.closeTo(4), expect.closeTo(4)]);
  expect(smooth([0, 10], 0.5)[1]).toBeCloseTo(20 / 3);
  expect(smooth([1, 2], 0)).toEqual([1, 2]);
});
