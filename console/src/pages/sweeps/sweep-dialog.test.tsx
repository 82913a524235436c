// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Sweep } from "@/api/types";
import { CloneSweepDialog } from "./sweep-dialog";

afterEach(cleanup);

const PRUNING = { method: "hyperband", unit: "step", min_resource: 10, factor: 2, max_resource: 80 };
const sweep = {
  ...{ id: "s-1", name: "digits", metric: { name: "accuracy", direction: "maximize" }, search: "random", points: [] },
  parameters: { lr: { values: [0.1, 0.2], low: null, high: null, step: null, log: false, is_float: false } },
  ...{ num_trials: 4, parallel: 2, max_slots: null, max_failures: 3, seed: 7, max_run_s: null },
  pruning: { ...PRUNING, parameter: "epochs" },
  job: { program: ["train.py"], parameters: {}, environment: { A: "b" } },
} as unknown as Sweep;

/** Clone the sweep with a change of its fields, and return what was sent. */
async function clone(...changes: [label: string, value: string][]) {
  const bodies: { pruning: object }[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    bodies.push(JSON.parse(String(init.body)));
    return Response.json({ id: "s-2" }, { status: 201 });
  });
  render(
    <QueryClientProvider client={new QueryClient()}>
      <CloneSweepDialog sweep={sweep} onClose={() => {}} />
    </QueryClientProvider>,
  );
  for (const [label, value] of changes) fireEvent.change(screen.getByLabelText(label), { target: { value } });
  await act(async () => void fireEvent.submit(screen.getByLabelText("Name")));
  return bodies;
}

it("a clone is like the sweep, and says which one it is", async () => {
  const { id, ...same } = sweep;
  const max_slots = null;
  expect(await clone()).toEqual([{ ...same, job: { ...sweep.job, data: null }, max_slots, clone_of: id }]);
});

it("Hyperband with a parameter of the program can become successive halving, and back", async () => {
  const [halving] = await clone(["Pruning", "halving"]);
  expect(halving?.pruning).toEqual({ ...PRUNING, method: "halving", parameter: null });
  cleanup();
  const [back] = await clone(["Pruning", "halving"], ["Pruning", "hyperband"]);
  expect(back?.pruning).toEqual(sweep.pruning);
});
