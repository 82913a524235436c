/** Several jobs side by side: their metrics on one axis, and what each took. Pure. */

import type { Allocation, Job, JobMetrics, Spec } from "@/api/types";
import type { Line } from "@/charts/series";
import { slotSeconds } from "@/jobs/facts";

/** What stands below the charts: the step, seconds of training, or the time of day. */
export type Axis = "step" | "seconds" | "time";

export interface Compared {
  job: Job;
  metrics: JobMetrics;
}

/** All that is known of a job that is compared. */
export interface Whole extends Compared {
  spec: Spec;
  allocations: readonly Allocation[];
}

/**
 * Return for each line how many before it go through the same points: so many lie below it, and it leaves gaps through
 * which they are seen.
 */
export function countCovered(lines: readonly Line[]): number[] {
  return lines.map((line, place) => lines.slice(0, place).filter((other) => isSame(line, other)).length);
}

function isSame(one: Line, other: Line): boolean {
  return (
    one.times.length > 0 &&
    one.times.length === other.times.length &&
    one.times.every((time, place) => time === other.times[place] && one.values[place] === other.values[place])
  );
}

/** Return all names under which any of the jobs logged; what is a loss first, then what most of them have. */
export function listNames(jobs: readonly Compared[]): string[] {
  const counts = new Map<string, number>();
  for (const { metrics } of jobs) {
    for (const { name } of metrics.series) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const rank = (name: string) => (/loss/i.test(name) ? 1 : 0);
  return [...counts.keys()].sort(
    (one, other) =>
      rank(other) - rank(one) || (counts.get(other) ?? 0) - (counts.get(one) ?? 0) || one.localeCompare(other),
  );
}

/** Return what one job logged under a name, over the axis; empty if it did not. */
export function findLine({ job, metrics }: Compared, name: string, axis: Axis): Line {
  const series = metrics.series.find((each) => each.name === name);
  if (!series) return { times: [], values: [] };
  if (axis === "step") return thinSteps(series.step, series.value);
  if (axis === "time") return { times: series.time, values: series.value };
  const begin = job.started_at ?? series.time[0] ?? 0;
  return { times: series.time.map((time) => time - begin), values: series.value };
}

/** What was logged twice at one step stands once, with its last value: a chart wants its x to grow. */
function thinSteps(steps: readonly number[], values: readonly (number | null)[]): Line {
  const found = new Map(steps.map((step, place) => [step, values[place] ?? null]));
  return { times: [...found.keys()], values: [...found.values()] };
}

/** Return the range of all lines. */
export function findExtent(lines: readonly Line[]): readonly [number, number] {
  const firsts = lines.flatMap((line) => line.times.slice(0, 1));
  const lasts = lines.flatMap((line) => line.times.slice(-1));
  const from = firsts.length ? Math.min(...firsts) : 0;
  return [from, Math.max(from + 1e-6, ...lasts)];
}

export interface Figures {
  last: number | null;
  best: number | null;
}

/** Return the last value and the best one: the lowest of a loss or an error, the highest of all else. */
export function findFigures(line: Line, name: string): Figures {
  const values = line.values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (!values.length) return { last: null, best: null };
  const isLow = /loss|error|perplexity|ppl|mse|mae/i.test(name);
  const best = values.reduce((one, other) => (isLow ? Math.min(one, other) : Math.max(one, other)));
  return { last: values.at(-1) ?? null, best };
}

/** Return the hours of slots that a job took; a slot is a GPU where there are any. */
export function slotHours(allocations: readonly Allocation[], now: number): number {
  return slotSeconds(allocations, now) / 3600;
}
