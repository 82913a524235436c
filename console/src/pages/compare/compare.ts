/** Several jobs side by side: their metrics on one axis, and what each took. Pure. */

import type { Allocation, Job, JobMetrics, Spec } from "@/api/types";
import { breakAtGaps, drawOverSteps, drawOverTime, dropRepeated, type Gap, type Line } from "@/charts/series";
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

/** Return whether two lines go through the same points, as far as the shorter one goes. */
function isSame(one: Line, other: Line): boolean {
  const shorter = one.times.length < other.times.length ? one : other;
  return (
    shorter.times.length > 0 &&
    shorter.times.every(
      (_, place) => one.times[place] === other.times[place] && one.values[place] === other.values[place],
    )
  );
}

/** Return all names under which any of the jobs logged; what is a loss first, then what most of them have. */
export function listNames(jobs: readonly Compared[]): string[] {
  const counts = new Map<string, number>();
  for (const { metrics } of jobs) {
    for (const { name } of dropRepeated(metrics.series)) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const rank = (name: string) => (/loss/i.test(name) ? 1 : 0);
  return [...counts.keys()].sort(
    (one, other) =>
      rank(other) - rank(one) || (counts.get(other) ?? 0) - (counts.get(one) ?? 0) || one.localeCompare(other),
  );
}

/** Return the stretches between others in which a job held no slot, so that nothing ran. */
export function findPauses(allocations: readonly Pick<Allocation, "since" | "until">[]): Gap[] {
  const held = [...allocations].sort((one, other) => one.since - other.since);
  const pauses: Gap[] = [];
  let until = held[0]?.since ?? 0;
  for (const each of held) {
    if (each.since > until) pauses.push({ from: until, until: each.since, isKnown: true });
    until = Math.max(until, each.until ?? Number.POSITIVE_INFINITY);
  }
  return pauses;
}

/** Return a metric of one job over the axis, with gaps where nothing ran; empty if the job does not have it. */
export function findLine({ job, metrics }: Compared, name: string, axis: Axis, pauses: readonly Gap[] = []): Line {
  const series = metrics.series.find((each) => each.name === name);
  if (!series) return { times: [], values: [] };
  if (axis === "step") return drawOverSteps({ steps: series.step, values: series.value });
  const line = breakAtGaps(drawOverTime(series), pauses);
  if (axis === "time") return line;
  const begin = job.started_at ?? line.times[0] ?? 0;
  return { ...line, times: line.times.map((time) => time - begin) };
}

/** Return the range of all lines. */
export function findExtent(lines: readonly Line[]): readonly [number, number] {
  const firsts = lines.flatMap((line) => line.times.slice(0, 1));
  const lasts = lines.flatMap((line) => line.times.slice(-1));
  const from = firsts.length ? Math.min(...firsts) : 0;
  return [from, Math.max(from + 1e-6, ...lasts)];
}

/** Whether a metric is better when it is lower or higher. */
export type Direction = "lower" | "higher";

const LOWER = new Set([
  ...["loss", "error", "errors", "err", "perplexity", "ppl", "mse", "rmse", "mae", "mape", "nll", "bce", "wer", "cer"],
  ...["fid", "brier"],
]);
const HIGHER = new Set([
  ...["accuracy", "acc", "top1", "top5", "f1", "auc", "auroc", "auprc", "precision", "recall", "iou", "miou", "dice"],
  ...["bleu", "rouge", "r2", "psnr", "ssim", "reward", "map", "ndcg"],
]);
/** What is about a loss or an accuracy, but is none. */
const NEITHER = new Set(["scale", "weight", "norm", "lr", "coef", "time", "count"]);

/** Return the direction that the name of a metric tells; null: it tells none, so no value is the best one. */
export function knownDirection(name: string): Direction | null {
  const words = `${name} ${name.replace(/([a-z])([A-Z])/g, "$1 $2")}`.toLowerCase().split(/[^a-z0-9]+/);
  if (words.some((word) => NEITHER.has(word))) return null;
  if (words.some((word) => LOWER.has(word))) return "lower";
  return words.some((word) => HIGHER.has(word)) ? "higher" : null;
}

/** Return the directions that the address of the page names, such as `best=lr:lower`; null: no best value is wanted. */
export function readDirections(query: URLSearchParams): ReadonlyMap<string, Direction | null> {
  return new Map(
    query.getAll("best").flatMap((told): [string, Direction | null][] => {
      const at = told.lastIndexOf(":");
      const [name, direction] = [told.slice(0, at), told.slice(at + 1)];
      if (direction === "none") return [[name, null]];
      return direction === "lower" || direction === "higher" ? [[name, direction]] : [];
    }),
  );
}

export interface Figures {
  last: number | null;
  /** Null: the direction is not known. */
  best: number | null;
}

/** Return the last value and the best one. */
export function findFigures(line: Line, direction: Direction | null): Figures {
  const values = line.values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (!values.length) return { last: null, best: null };
  const best = direction && values.reduce((one, other) => Math[direction === "lower" ? "min" : "max"](one, other));
  return { last: values.at(-1) ?? null, best };
}

/** Return the hours of slots that a job took; a slot is a GPU where there are any. */
export function slotHours(allocations: readonly Allocation[], now: number): number {
  return slotSeconds(allocations, now) / 3600;
}
