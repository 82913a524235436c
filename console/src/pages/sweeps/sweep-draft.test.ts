import { describe, expect, it } from "vitest";
import type { Sweep } from "@/api/types";
import type { Definition } from "@/pages/projects/project-data";
import {
  bodyOfClone,
  bodyOfSweep,
  bodyOfTrial,
  checkSweep,
  draftOfSweep,
  EMPTY_SWEEP,
  listHidden,
  listUnsaved,
  readTunable,
} from "./sweep-draft";

describe("a field of a parameter", () => {
  it.each([
    ["0.001..0.1 log", { low: 0.001, high: 0.1, step: null, log: true, is_float: true }],
    [" 8 .. 64 step 8", { low: 8, high: 64, step: 8, log: false, is_float: false }],
    ["1e-4..0.5", { low: 1e-4, high: 0.5, step: null, log: false, is_float: true }],
    ["-1..0", { low: -1, high: 0, step: null, log: false, is_float: false }],
    ["0.0..1.0", { low: 0, high: 1, step: null, log: false, is_float: true }],
    ["1..1e1", { low: 1, high: 10, step: null, log: false, is_float: true }],
    ["0..1 step 0.5", { low: 0, high: 1, step: 0.5, log: false, is_float: true }],
    ["sgd, adam", { values: ["sgd", "adam"], log: false, is_float: false }],
    ["1, 2.5, true", { values: [1, 2.5, true], log: false, is_float: false }],
    ["log", { values: ["log"], log: false, is_float: false }],
  ])("%s", (text, tunable) => expect(readTunable(text)).toEqual({ tunable, wrong: null }));

  it.each([
    "",
    "a,,b",
    "2..1",
    "1..",
    "..2",
    "a..b",
    "1..2..3",
    "1..2 step 0",
    "1..2 often",
    "1..Infinity",
    "1..1e999",
    "0x1..0x8",
    "1..8 step 2 log",
    "1..8 log step 2",
    "1..8 logs",
    "0.1 to 0.001",
  ])("refuses '%s'", (text) => expect(readTunable(text).wrong).toBeTruthy());
});

const draft = { ...EMPTY_SWEEP, name: "s", parameters: [{ name: "--lr", value: "0.1..1" }] };

it("what is wrong is found before the server is asked", () => {
  expect(checkSweep(draft)).toEqual({});
  expect(checkSweep({ ...draft, name: "by rate" }).name).toBeTruthy();
  expect(checkSweep({ ...draft, parameters: [] }).parameters).toMatch(/at least one/);
  expect(checkSweep({ ...draft, parameters: [...draft.parameters, ...draft.parameters] }).parameters).toMatch(/twice/);
  expect(checkSweep({ ...draft, parameters: [{ name: "lr", value: "2..1" }] }).parameters).toMatch(/^lr: A range/);
  expect(Object.keys(checkSweep({ ...draft, numTrials: "0", parallel: "x", maxSlots: "-1" }))).toEqual([
    ...["num_trials", "parallel", "max_slots"],
  ]);
  expect(checkSweep({ ...draft, search: "grid", numTrials: "" })).toEqual({});
  expect(checkSweep({ ...draft, pruning: "hyperband" }).pruning).toBeTruthy();
  expect(checkSweep({ ...draft, pruning: "halving" })).toEqual({});
});

const definition = {
  ...{
    id: "d-1",
    project: "p-1",
    name: "digits",
    description: "",
    framework: "edtPyTorch",
    code: "ab",
    directory: null,
  },
  ...{ command: "train.py --mode 'two words'", distributed: "elastic", min_nodes: 2, max_nodes: 4, num_threads: 3 },
  ...{ cpu_capability: null, python: "/venv", parameters: { lr: 5, epochs: 2 }, environment: { A: "b", SECRET: null } },
  ...{
    seed: 7,
    checkpoint_every: "2epochs",
    max_retries: 1,
    max_run_s: 60,
    created_by: "ann",
    version: 1,
    created_at: 0,
  },
} as unknown as Definition;

it("a parameter may have any name, also one that every object has", () => {
  const named = (name: string) => ({ ...draft, parameters: [{ name, value: "1..2" }] });
  for (const name of ["constructor", "__proto__"]) {
    expect(checkSweep(named(name))).toEqual({});
    expect(Object.keys(bodyOfSweep(named(name), definition, "q").parameters ?? {})).toEqual([name]);
  }
});

it("trials run the definition, and what is searched replaces its parameters", () => {
  const body = bodyOfSweep({ ...draft, data: " digits " }, definition, "research");
  expect(body.job).toMatchObject({
    ...{ program: ["train.py", "--mode", "two words"], min_workers: 2, max_workers: 4, is_elastic: true, code: "ab" },
    ...{ parameters: { epochs: 2 }, environment: { A: "b" }, queue: "research", data: "digits", python: "/venv" },
  });
  expect(body.parameters).toEqual({ lr: { low: 0.1, high: 1, step: null, log: false, is_float: true } });
});

describe("a sweep that is cloned", () => {
  const { job, ...plan } = bodyOfSweep(
    { ...draft, parameters: [{ name: "lr", value: "0.0..1.0" }], pruning: "halving" },
    definition,
    "q",
  );
  const tuned = { values: ["1", "a, b"], low: null, high: null, step: null, log: false, is_float: false };
  const parameters = { ...plan.parameters, text: tuned };
  const pruning = { ...plan.pruning, unit: "step", min_resource: 2, max_resource: null, parameter: null };
  const rest = { num_trials: 12, max_slots: null, max_run_s: 60, max_failures: 5, seed: 7 };
  const environment = { A: "b", SECRET: null };
  const sweep = { id: "s-1", ...plan, ...rest, pruning, parameters, job: { ...job, environment } } as unknown as Sweep;

  it("is the same sweep, if nothing is changed", () => {
    const body = bodyOfClone(draftOfSweep(sweep), sweep);
    const same = { ...plan, ...rest, parameters, pruning, job: { ...job, environment: { A: "b" } } };
    expect(body).toEqual({ ...same, clone_of: "s-1" });
  });

  it.each(["0.001..0.1 log", "8..64 step 8", "0.0..1.0", "1.0..20.0", "1e-9..0.5"])("keeps the range %s", (value) => {
    const made = bodyOfSweep({ ...draft, parameters: [{ name: "lr", value }] }, definition, "q");
    const again = draftOfSweep({ ...sweep, parameters: made.parameters } as unknown as Sweep);
    expect(readTunable(again.parameters[0]?.value ?? "").tunable).toEqual(made.parameters?.lr);
  });

  it("has what was changed", () => {
    const changed = {
      ...draftOfSweep(sweep),
      name: "t",
      parameters: [{ name: "epochs", value: "1, 2" }],
      maxSlots: "4",
    };
    const body = bodyOfClone(changed, sweep);
    expect(body).toMatchObject({ name: "t", max_slots: 4, seed: 7 });
    expect(Object.keys(body.parameters ?? {})).toEqual(["epochs"]);
    expect([job.parameters, body.job.parameters]).toEqual([{ epochs: 2 }, {}]);
  });

  it("has its points again", () => {
    const listed = { ...sweep, search: "list", parameters: {}, points: [{ lr: 1 }] } as unknown as Sweep;
    expect(checkSweep(draftOfSweep(listed))).toEqual({});
    expect(bodyOfClone(draftOfSweep(listed), listed)).toMatchObject({ num_trials: null, points: [{ lr: 1 }] });
    const random = { search: "random", parameters: [{ name: "lr", value: "1, 2" }] } as const;
    expect(bodyOfClone({ ...draftOfSweep(listed), ...random }, listed)).toMatchObject({ search: "random", points: [] });
  });
});

it("variables whose values the user does not see are named", () => {
  expect(listHidden(definition)).toEqual(["SECRET"]);
});

it("a trial becomes the definition that runs it again", () => {
  const { job } = bodyOfSweep(draft, definition, "default");
  const made = bodyOfTrial("best", "why", { id: "s-1", job: { ...job } }, { number: 3, parameters: { lr: 0.5 } });
  const { id, project, created_by, version, created_at, ...same } = definition;
  expect(made).toEqual({
    ...same,
    name: "best",
    description: "why",
    environment: {},
    parameters: { epochs: 2, lr: 0.5 },
    clone_of_trial: { sweep: "s-1", number: 3 },
  });
  const bare = (job: Record<string, unknown>) =>
    bodyOfTrial("a", "", { id: "s-1", job }, { number: 0, parameters: {} });
  expect(bare({ program: ["a.py"] }).distributed).toBe("single");
  const fixed = bare({ program: ["a.py"], min_workers: 1, max_workers: 3, is_elastic: false });
  expect([fixed.distributed, fixed.min_nodes, fixed.max_nodes]).toEqual(["static", 3, 3]);
});

it("fields that a definition cannot have are named", () => {
  expect(listUnsaved({ program: ["a.py"], gpus_per_worker: 1, labels: {}, gpu_type: null, queue: "q" })).toEqual([]);
  expect(listUnsaved({ program: ["a.py"], gpus_per_worker: 2, memory_bytes: 5, node_labels: { a: "b" } })).toEqual([
    ...["gpus_per_worker", "memory_bytes", "node_labels"],
  ]);
});
