/** From what the server tells of a training to lines for charts. Pure; times are seconds since 1970. */

import type { JobMetrics, TrainingEvent } from "@/api/types";

export interface Line {
  times: readonly number[];
  values: readonly (number | null)[];
}

export interface MarkKind {
  tone: "resize" | "death" | "note";
  word: string;
}

/** Something that happened at a moment, for a vertical mark. */
export interface Mark extends MarkKind {
  time: number;
  step: number | null;
  reason: string;
}

/** Return metrics with later ones behind them. Repeated points appear once; older points never change. */
export function mergeMetrics(known: JobMetrics, later: JobMetrics): JobMetrics {
  const series = known.series.map((old) => {
    const found = later.series.find((each) => each.name === old.name);
    const last = old.step.at(-1) ?? -1;
    const begin = found ? found.step.findIndex((step) => step > last) : -1;
    if (!found || begin < 0) return old;
    return {
      name: old.name,
      source: old.source,
      step: [...old.step, ...found.step.slice(begin)],
      epoch: [...old.epoch, ...found.epoch.slice(begin)],
      time: [...old.time, ...found.time.slice(begin)],
      value: [...old.value, ...found.value.slice(begin)],
    };
  });
  for (const each of later.series) if (!known.series.some((old) => old.name === each.name)) series.push(each);
  const last = known.steps.step.at(-1) ?? -1;
  const begin = later.steps.step.findIndex((step) => step > last);
  if (begin < 0) return { series, steps: known.steps };
  const { step, epoch, view, time } = known.steps;
  return {
    series,
    steps: {
      step: [...step, ...later.steps.step.slice(begin)],
      epoch: [...epoch, ...later.steps.epoch.slice(begin)],
      view: [...view, ...later.steps.view.slice(begin)],
      time: [...time, ...later.steps.time.slice(begin)],
    },
  };
}

/** Return the step behind which later metrics begin. The last step is read again, because more may have been logged at it. */
export function stepToAskAfter(metrics: JobMetrics): number {
  const lasts = metrics.series.map((series) => series.step.at(-1) ?? 0);
  const last = Math.min(Math.max(0, ...lasts), metrics.steps.step.at(-1) ?? 0);
  return Math.max(0, last - 1);
}

/**
 * Return whether later metrics, asked for behind `stepToAskAfter`, go on where the known ones end. An attempt that began
 * at step 0 has not yet come so far, or came there later than what is known. When a program first logs a `loss` itself,
 * the losses of its steps get another name.
 */
export function goesOn(known: JobMetrics, later: JobMetrics): boolean {
  const last = known.steps.time.at(-1);
  const first = later.steps.time[0];
  const source = new Map(known.series.map((series) => [series.name, series.source]));
  if (later.series.some(({ name, source: told }) => (source.get(name) ?? told) !== told)) return false;
  return last === undefined || (first !== undefined && first <= last);
}

/** Return how many points are held. */
export function countPoints(metrics: JobMetrics): number {
  return metrics.steps.step.length + metrics.series.reduce((sum, series) => sum + series.step.length, 0);
}

const MIN_BIN_S = 1;
const NUM_BINS = 160;

/** Return steps per second over stretches of time, each at its end. */
export function findThroughput(steps: { step: readonly number[]; time: readonly number[] }): Line {
  const times: number[] = [];
  const values: number[] = [];
  const [first, last] = [steps.time[0], steps.time.at(-1)];
  if (first === undefined || last === undefined || last <= first) return { times, values };
  const bin_s = Math.max(MIN_BIN_S, (last - first) / NUM_BINS);
  let from = 0;
  for (let place = 1; place < steps.time.length; place += 1) {
    const passed = (steps.time[place] as number) - (steps.time[from] as number);
    // The last stretch is left out until it is whole: a short one tells little.
    if (passed < bin_s) continue;
    times.push(steps.time[place] as number);
    values.push(((steps.step[place] as number) - (steps.step[from] as number)) / passed);
    from = place;
  }
  return { times, values };
}

const OVER: ReadonlySet<string> = new Set(["finished", "stopped", "failed", "held", "resumed"]);

/** Return how many workers trained together from each time on, by who joined which view. */
export function findWorkers(events: readonly TrainingEvent[]): Line {
  const times: number[] = [];
  const values: number[] = [];
  let view: number | null = null;
  for (const event of events) {
    if (event.kind === "joined" && event.view !== null) {
      if (event.view !== view) {
        view = event.view;
        times.push(event.time);
        values.push(1);
      } else values[values.length - 1] = (values.at(-1) ?? 0) + 1;
    } else if (OVER.has(event.kind) && event.worker === null && values.at(-1)) {
      times.push(event.time);
      values.push(0);
      view = null;
    }
  }
  return { times, values };
}

const MARKS: Record<string, MarkKind> = {
  scaled: { tone: "resize", word: "Resized" },
  died: { tone: "death", word: "Worker died" },
  fenced: { tone: "death", word: "Worker replaced" },
  differed: { tone: "death", word: "Not exact" },
  resumed: { tone: "death", word: "Resumed from checkpoint" },
  held: { tone: "death", word: "Held" },
  adopted: { tone: "note", word: "New driver" },
  saved: { tone: "note", word: "Checkpoint" },
};

/** Return what is worth a mark, in order of time; arrows are those of all pages, whatever the driver writes. */
export function findMarks(events: readonly TrainingEvent[]): Mark[] {
  return events.flatMap((event) => {
    const kind = MARKS[event.kind];
    return kind
      ? [{ ...kind, time: event.time, step: event.step, reason: event.reason.replaceAll(" -> ", " → ") }]
      : [];
  });
}

/** Return the place of the last time that is not after this one, or -1. */
export function placeAt(times: readonly number[], time: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] as number) <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Return the values of a line smoothed by an exponential mean; 0: as they are. Gaps stay gaps. */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return [...values];
  let mean = 0;
  let norm = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return value;
    mean = weight * mean + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return mean / norm;
  });
}
