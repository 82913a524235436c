import { describe, expect, it } from "vitest";
import type { JobMetrics, PlatformEvent, Series, TrainingEvent } from "@/api/types";
import {
  breakAtGaps,
  drawOverSteps,
  drawOverTime,
  drawWorkersOverSteps,
  dropRepeated,
  findGaps,
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
    expect(line).toEqual({ times: [10, 21, 25], values: [2, 1, 0] });
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

describe("gaps", () => {
  const joined = (time: number, view: number, ...workers: number[]) =>
    workers.map((worker) => event("joined", time, { view, worker }));

  it("are where no worker trained, and where no driver ran; deaths count at once", () => {
    const events = [
      ...joined(10, 1, 0, 1),
      event("died", 12, { worker: 1 }),
      ...joined(13, 2, 0),
      event("stopped", 20),
      event("started", 40, { worker: 0 }),
      ...joined(41, 1, 0),
      event("adopted", 60),
      event("left", 70, { worker: 0 }),
    ];
    const workers = findWorkers(events, { stepTimes: [11, 42, 50, 61] });
    expect(workers).toEqual({ times: [10, 12, 13, 20, 41, 50, 60, 70], values: [2, 1, 1, 0, 1, null, 1, 0] });
    expect(findGaps(workers)).toEqual([
      { from: 20, until: 41, isKnown: true },
      { from: 50, until: 60, isKnown: false },
    ]);
  });
  it("begin with the end of an attempt that nothing else tells", () => {
    const events = [...joined(10, 1, 0), ...joined(40, 1, 0)];
    const workers = findWorkers(events, { attempts: [{ ended_at: 15 }, { ended_at: null }] });
    expect(workers).toEqual({ times: [10, 15, 40], values: [1, 0, 1] });
  });
  it("break lines, and no throughput is measured over them", () => {
    const gaps = [
      { from: 10, until: 100, isKnown: true },
      { from: 120, until: 200, isKnown: false },
    ];
    const line = breakAtGaps({ times: [9, 101, 102], values: [1, 2, 3], steps: [1, 2, 3] }, gaps);
    expect(line).toEqual({ times: [9, 55, 101, 102], values: [1, null, 2, 3], steps: [1, 1, 2, 3] });
    const time = [0, 1, 2, 3, 101, 103, 105, 107, 200, 200.1, 202, 204, 206];
    // While no driver ran, 80 steps were committed; the next driver got them at once.
    const step = [0, 10, 20, 30, 40, 60, 80, 100, 150, 180, 190, 210, 230];
    const throughput = findThroughput({ step, time }, gaps);
    expect(throughput.values.map((value) => value && Math.round(value))).toEqual([
      ...[10, null, 10, 10, 10, null, 5, 10, 10],
    ]);
  });
});

it("a line over steps has each step once; workers over steps have no gaps", () => {
  expect(drawOverSteps({ steps: [1, 2, 2], values: [4, 3, 2] })).toEqual({ times: [1, 2], values: [4, 2] });
  const workers = { times: [10, 20, 40], values: [2, 0, 1] };
  expect(drawWorkersOverSteps(workers, { step: [1, 5], time: [11, 15] })).toEqual({ times: [0, 5], values: [2, 1] });
});

it("times of a series never go back", () => {
  expect(drawOverTime({ step: [1, 2, 3], time: [5, 4, 6], value: [1, 2, 3] }).times).toEqual([5, 5, 6]);
});

it("the losses of steps are not drawn twice where the program logs the same", () => {
  const [own] = metrics([], { loss: [1, 2, 3, 4] }).series;
  const ofSteps = { ...own, name: "step_loss", source: "backward" } as Series;
  const sparse = metrics([], { loss: [4] }).series[0] as Series;
  expect(dropRepeated([own as Series, ofSteps])).toEqual([own]);
  expect(dropRepeated([sparse, ofSteps])).toHaveLength(2);
  expect(dropRepeated([{ ...(own as Series), value: [0, 0, 0, 0] }, ofSteps])).toHaveLength(2);
});

it("marks are also what users and the platform did, each with the step at that time", () => {
  const told = (kind: string, time: number, detail: Record<string, unknown> | null = null): PlatformEvent => ({
    ...{ seq: time, time, kind, reason: kind, job: "j", attempt: 2, detail: detail as PlatformEvent["detail"] },
  });
  const steps = { step: [1, 2, 3], time: [1, 2, 30] };
  const marks = findMarks(
    [event("note", 12, { level: "warning" }), event("note", 13), event("died", 14, { step: 9 })],
    [
      told("stage", 0, { from: "starting", to: "running" }),
      told("decision", 3),
      told("changed", 4, { priority: 7 }),
      told("changed", 4, { notes: "for people" }),
      told("changed", 5, { max_workers: 2 }),
      told("stage", 6, { from: "running", to: "pausing" }),
      told("stage", 7, { from: "pausing", to: "paused" }),
      told("stage", 20, { from: "paused", to: "queued" }),
      told("stage", 40, { from: "running", to: "failed" }),
    ],
    steps,
  );
  expect(marks.map(({ word, step }) => [word, step])).toEqual([
    ["Runs again", 0],
    ["Priority changed", 2],
    ["Limits changed", 2],
    ["Pause requested", 2],
    ["Paused", 2],
    ["Warning", 2],
    ["Worker died", 9],
    ["Resumed", 2],
    ["Failed", 3],
  ]);
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
