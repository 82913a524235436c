/** From what the server measured of workers and machines to lines for charts. Pure; times are seconds since 1970. */

import type { SystemSeries } from "@/api/types";
import type { Line } from "./series";

/** One chart. Values are in its unit; null where nothing was measured. */
export interface SystemChart {
  title: string;
  unit: string;
  lines: readonly (Line & { label: string })[];
}

/** Of more lines, only the newest workers are shown. */
export const MAX_LINES = 12;

const GIB = 2 ** 30;

interface Kind<T> {
  title: string;
  unit: string;
  scale: number;
  read: (series: T) => readonly (number | null)[];
}

const OF_WORKERS: readonly Kind<SystemSeries["workers"][number]>[] = [
  { title: "Waiting for data", unit: " %", scale: 100, read: (worker) => worker.data_wait },
  { title: "GPU use", unit: " %", scale: 100, read: (worker) => worker.gpu_busy },
  { title: "GPU memory", unit: " GiB", scale: 1 / GIB, read: (worker) => worker.gpu_memory_bytes },
  { title: "CPU cores", unit: "", scale: 1, read: (worker) => worker.cpus },
  { title: "Memory", unit: " GiB", scale: 1 / GIB, read: (worker) => worker.memory_bytes },
];

/** Return the charts of a job's workers, without those of which nothing was measured. */
export function chartWorkers({ workers }: SystemSeries): SystemChart[] {
  const shown = workers.slice(-MAX_LINES);
  return OF_WORKERS.map(({ title, unit, scale, read }) => ({
    title,
    unit,
    lines: shown.map((worker) => ({
      label: `worker ${worker.worker}`,
      times: worker.time,
      values: scaled(read(worker), scale),
    })),
  })).filter(hasValues);
}

/** Return the charts of a machine, without those of which nothing was measured. */
export function chartMachine({ nodes }: SystemSeries): SystemChart[] {
  const node = nodes[0];
  if (!node) return [];
  const line = (label: string, values: readonly (number | null)[], scale: number) => ({
    label,
    times: node.time,
    values: scaled(values, scale),
  });
  const gpus = node.gpus.slice(0, MAX_LINES);
  const name = (gpu: (typeof gpus)[number]) => `GPU of slot ${gpu.slots.join(", ")}`;
  return [
    { title: `CPU cores of ${node.num_cpus}`, unit: "", lines: [line("CPU cores", node.cpus, 1)] },
    {
      title: `Memory of ${(node.total_bytes / GIB).toFixed(0)} GiB`,
      unit: " GiB",
      lines: [line("Memory", node.memory_bytes, 1 / GIB)],
    },
    { title: "GPU use", unit: " %", lines: gpus.map((gpu) => line(name(gpu), gpu.busy, 100)) },
    { title: "GPU memory", unit: " GiB", lines: gpus.map((gpu) => line(name(gpu), gpu.memory_bytes, 1 / GIB)) },
  ].filter(hasValues);
}

/** Return the time in which something was measured; null: nothing was. */
export function findSystemRange({ workers, nodes }: SystemSeries): readonly [number, number] | null {
  const times = [...workers, ...nodes]
    .flatMap(({ time }) => [time[0], time.at(-1)])
    .filter((time) => time !== undefined);
  if (!times.length) return null;
  const first = Math.min(...times);
  return [first, Math.max(...times, first + 1)];
}

function scaled(values: readonly (number | null)[], scale: number): (number | null)[] {
  return values.map((value) => (value === null ? null : value * scale));
}

function hasValues({ lines }: SystemChart): boolean {
  return lines.some(({ values }) => values.some((value) => value !== null));
}
