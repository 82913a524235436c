import { expect, it } from "vitest";
import type { SystemSeries } from "@/api/types";
import { chartMachine, chartWorkers, findSystemRange, MAX_LINES } from "./system-lines";

const GIB = 2 ** 30;

function makeWorker(worker: number): SystemSeries["workers"][number] {
  const nothing = [null, null, null];
  return {
    ...{ worker, slot: `a/${worker}`, time: [10, 20, 30], cpus: [1, 2, null], memory_bytes: [GIB, 2 * GIB, null] },
    ...{ gpu_busy: nothing, gpu_memory_bytes: nothing, data_wait: [0.784, null, null] },
  };
}

const NODE: SystemSeries["nodes"][number] = {
  ...{ node: "a", num_cpus: 16, total_bytes: 64 * GIB, time: [5, 15], cpus: [3, null], memory_bytes: [GIB, null] },
  gpus: [
    { device: "GPU-a", name: "H100", slots: [0, 1], total_bytes: 80 * GIB, busy: [0.5, null], memory_bytes: [GIB, 0] },
    { device: "MIG-b", name: "H100", slots: [2], total_bytes: 10 * GIB, busy: [null, null], memory_bytes: [GIB, GIB] },
  ],
};

it("workers have a chart of each thing that is measured, with the gaps of the server", () => {
  const charts = chartWorkers({ workers: [makeWorker(1), makeWorker(4)], nodes: [] });
  expect(charts.map(({ title, unit }) => title + unit)).toEqual(["Waiting for data %", "CPU cores", "Memory GiB"]);
  expect(charts[0]?.lines.map(({ label }) => label)).toEqual(["worker 1", "worker 4"]);
  expect(charts[0]?.lines[0]?.values).toEqual([78.4, null, null]);
  expect(charts[1]?.lines[0]).toEqual({ label: "worker 1", times: [10, 20, 30], values: [1, 2, null] });
  expect(charts[2]?.lines[0]?.values).toEqual([1, 2, null]);
});

it("of many workers, the newest are shown", () => {
  const workers = Array.from({ length: 40 }, (_, number) => makeWorker(number));
  const lines = chartWorkers({ workers, nodes: [] })[0]?.lines ?? [];
  expect([lines.length, lines.at(-1)?.label]).toEqual([MAX_LINES, "worker 39"]);
});

it("a machine has charts of all its programs and of its GPUs", () => {
  const charts = chartMachine({ workers: [], nodes: [NODE] });
  expect(charts.map(({ title }) => title)).toEqual(["CPU cores of 16", "Memory of 64 GiB", "GPU use", "GPU memory"]);
  expect(charts[2]?.lines.map(({ label, values }) => [label, values])).toEqual([
    ["GPU of slot 0, 1", [50, null]],
    ["GPU of slot 2", [null, null]],
  ]);
  expect(charts[3]?.lines[0]?.values).toEqual([1, 0]);
  expect(chartMachine({ workers: [], nodes: [] })).toEqual([]);
});

it("the range is all the time in which something was measured", () => {
  expect(findSystemRange({ workers: [makeWorker(1)], nodes: [NODE] })).toEqual([5, 30]);
  expect(findSystemRange({ workers: [], nodes: [] })).toBeNull();
});
