import { describe, expect, it } from "vitest";
import type { Trial, Tunable } from "@/api/types";
import { metricOf, placeTrials } from "./scatter";

const range = (low: number, high: number, log = false): Tunable => ({
  low,
  high,
  log,
  step: null,
  values: null,
  is_float: true,
});
const trial = (number: number, value: number | null, parameters: Trial["parameters"]): Trial => ({
  ...{ number, value, parameters, job: `j-${number}`, job_stage: "succeeded", num_slots: 0, state: "succeeded" },
  ...{ reports: [], reason: null, started_at: 0, ended_at: 1 },
});

describe("the picture of a sweep", () => {
  it("places trials by their parameter and their metric", () => {
    const trials = [trial(0, 0.2, { lr: 0.001 }), trial(1, 0.6, { lr: 0.01 }), trial(2, 0.4, { lr: 0.1 })];
    const { dots, ticks, low, high } = placeTrials(trials, "lr", range(0.001, 0.1, true));
    expect(dots.map(({ x }) => Number(x.toFixed(6)))).toEqual([0, 0.5, 1]);
    expect(dots.map(({ y }) => Number(y.toFixed(6)))).toEqual([0, 1, 0.5]);
    expect([low, high]).toEqual([0.2, 0.6]);
    expect(ticks.map(({ x }) => x)).toEqual([0, 0.5, 1]);
  });

  it("gives values of a list equal distances", () => {
    const tunable: Tunable = { ...range(0, 1), low: null, high: null, values: ["sgd", "adam"] };
    const { dots, ticks } = placeTrials([trial(0, 1, { o: "adam" })], "o", tunable);
    expect(dots.map(({ x, y }) => [x, y])).toEqual([[0.75, 0.5]]);
    expect(ticks).toEqual([
      { x: 0.25, label: "sgd" },
      { x: 0.75, label: "adam" },
    ]);
  });

  it("leaves out trials without a value, and shows the last comparison of running ones", () => {
    const failed = trial(0, null, { lr: 0.5 });
    const running = { ...trial(1, null, { lr: 0.5 }), reports: [{ resource: 1, value: 0.3 }] };
    expect(metricOf(running)).toBe(0.3);
    expect(placeTrials([failed, running], "lr", range(0, 1)).dots.map((dot) => dot.trial.number)).toEqual([1]);
  });
});
