// @vitest-environment jsdom
import { QueryClient } from "@tanstack/react-query";
import { expect, it, vi } from "vitest";
import type { JobMetrics, TrainingEvent } from "@/api/types";
import { askMetrics, askTrainingEvents } from "./use-training";

const JOB = { id: "j-1", stage: "running" } as const;

/** A job of which a step is committed and logged at each of these times. */
function measure(times: readonly number[], after: number): JobMetrics {
  const steps = times.map((_, step) => step).filter((step) => step > after);
  const time = steps.map((step) => times[step] as number);
  const column = { step: steps, epoch: steps.map(() => 0), time };
  return {
    series: [{ name: "loss", source: "log", ...column, value: time }],
    steps: { ...column, view: column.epoch },
  };
}

function note(times: readonly number[], after: number): TrainingEvent[] {
  const rest = { kind: "joined", level: "info", reason: "", worker: 0, view: 1, step: null, detail: null } as const;
  return times.map((time, place) => ({ seq: place + 1, time, ...rest })).filter((event) => event.seq > after);
}

function serve(times: { now: number[] }): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (address: string) => {
    asked.push(address);
    const query = new URLSearchParams(address.split("?")[1]);
    if (address.includes("training-events")) {
      return Response.json({ items: note(times.now, Number(query.get("after"))), after: 0 });
    }
    return Response.json(measure(times.now, Number(query.get("after_step") ?? -1)));
  });
  return asked;
}

it("asks for what is new alone, and puts it behind what is known", async () => {
  const times = { now: [10, 11, 12] };
  const asked = serve(times);
  const client = new QueryClient();
  await client.fetchQuery(askMetrics(JOB));
  times.now = [10, 11, 12, 13];
  const told = await client.fetchQuery({ ...askMetrics(JOB), staleTime: 0 });
  expect(told.steps.time).toEqual([10, 11, 12, 13]);
  expect(asked.map((address) => address.includes("after_step"))).toEqual([false, true]);
});

it.each([
  ["has done nothing", []],
  ["is behind the first one", [50, 51]],
  ["is beyond the first one", [50, 51, 52, 53, 54]],
])("nothing of an attempt is left when the next one began at step 0 and %s", async (_, next) => {
  const times = { now: [10, 11, 12, 13] };
  serve(times);
  const client = new QueryClient();
  await client.fetchQuery(askMetrics(JOB));
  await client.fetchQuery(askTrainingEvents(JOB));
  times.now = next;
  const told = await client.fetchQuery({ ...askMetrics(JOB), staleTime: 0 });
  expect(told.steps.time).toEqual(next);
  expect(told.series.flatMap((series) => series.time)).toEqual(next);
  const events = await client.fetchQuery({ ...askTrainingEvents(JOB), staleTime: 0 });
  expect(events.map((event) => event.time)).toEqual(next);
});
