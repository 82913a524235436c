import { describe, expect, it } from "vitest";
import {
  canDo,
  mayHavePaused,
  mostSlots,
  saySlots,
  secondsHeld,
  secondsLeft,
  secondsRun,
  secondsWaited,
  shareDone,
  slotSeconds,
} from "./facts";
import { makeJob, makeProgress } from "./make-job";

describe("secondsLeft", () => {
  it("multiplies the steps left by the present time of a step", () => {
    expect(secondsLeft(makeJob(), 1000)).toBe(120);
  });
  it("decreases between two reports, but for a limited time", () => {
    expect(secondsLeft(makeJob(), 1004)).toBe(116);
    expect(secondsLeft(makeJob(), 9000)).toBe(110);
    expect(secondsLeft(makeJob(), 900)).toBe(120);
  });
  it.each([
    ["does not run", makeJob({ stage: "paused" })],
    ["does not say how many steps there are", makeJob({ progress: makeProgress({ num_steps: null }) })],
    ["has no pace yet", makeJob({ progress: makeProgress({ step_s: null }) })],
    ["has no progress", makeJob({ progress: null })],
  ])("is not known of a job that %s", (_, job) => {
    expect(secondsLeft(job, 1000)).toBeNull();
  });
});

it("shareDone is the part of the steps that are done, and 1 after success", () => {
  expect(shareDone(makeJob())).toBe(0.4);
  expect(shareDone(makeJob({ progress: makeProgress({ step: 120 }) }))).toBe(1);
  expect(shareDone(makeJob({ progress: null }))).toBeNull();
  expect(shareDone(makeJob({ progress: null, stage: "succeeded" }))).toBe(1);
});

it("waiting ends at the first start, or at the end of the job", () => {
  expect(secondsWaited(makeJob(), 2000)).toBe(10);
  expect(secondsWaited(makeJob({ started_at: null }), 2000)).toBe(1100);
  expect(secondsWaited(makeJob({ started_at: null, ended_at: 950 }), 2000)).toBe(50);
  expect(secondsRun(makeJob(), 2000)).toBe(1090);
  expect(secondsRun(makeJob({ started_at: null }), 2000)).toBeNull();
});

it("the runtime does not grow while a job is paused, and secondsHeld excludes pauses", () => {
  const paused = makeJob({ stage: "paused", num_slots: 0, staged_at: 950 });
  expect([secondsRun(paused, 1000), secondsRun(paused, 2000)]).toEqual([40, 40]);
  expect(mayHavePaused(paused)).toBe(false);
  expect(mayHavePaused(makeJob({ stage: "queued" }))).toBe(true);
  expect(mayHavePaused(makeJob({ attempt: 2 }))).toBe(true);
  const attempts = [
    { started_at: 910, ended_at: 950 },
    { started_at: 1500, ended_at: null },
  ];
  expect(secondsHeld(attempts, 1510)).toBe(50);
  expect(secondsHeld(attempts.slice(0, 1), 2000)).toBe(40);
});

it("slots are shown with the maximum, or as bounds", () => {
  expect(saySlots(makeJob())).toBe("2 of 4");
  expect(saySlots(makeJob({ min_workers: 4 }))).toBe("2 of 4");
  expect(saySlots(makeJob({ stage: "queued", num_slots: 0 }))).toBe("1–4");
});

it("jobs that have ended cannot be changed, paused jobs can be resumed", () => {
  expect(canDo("stop", makeJob({ stage: "failed" }))).toBe(false);
  expect(canDo("pause", makeJob({ stage: "pausing" }))).toBe(false);
  expect(canDo("resume", makeJob({ stage: "paused" }))).toBe(true);
  for (const action of ["pause", "resize", "priority", "resume"] as const) {
    expect(canDo(action, makeJob({ stage: "stopping" }))).toBe(false);
  }
  expect(canDo("stop", makeJob({ stage: "stopping" }))).toBe(true);
  expect(canDo("priority", makeJob({ stage: "queued" }))).toBe(true);
});

it("slotSeconds includes slots that are still held", () => {
  expect(
    slotSeconds(
      [
        { since: 0, until: 10 },
        { since: 5, until: null },
      ],
      20,
    ),
  ).toBe(25);
});

it("mostSlots is the highest number held at once", () => {
  const held = (since: number, until: number | null) => ({ since, until });
  expect(mostSlots([held(0, 10), held(0, 5), held(5, 10), held(12, null)])).toBe(2);
  expect(mostSlots([])).toBe(0);
});
