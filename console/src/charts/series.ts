/** From what the server tells of a training to lines for charts. Pure; times are seconds since 1970. */

import type { JobMetrics, PlatformEvent, Series, TrainingEvent } from "@/api/types";

export interface Line {
  times: readonly number[];
  values: readonly (number | null)[];
}

/** A line over time, with the step of each point. */
export interface LineWithSteps extends Line {
  steps: readonly number[];
}

export interface MarkKind {
  tone: "resize" | "death" | "change" | "note";
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

/** A stretch of time in which no worker trained, or of which nothing is known because no driver ran. */
export interface Gap {
  from: number;
  until: number;
  isKnown: boolean;
}

const MIN_BIN_S = 1;
const NUM_BINS = 160;
/** What workers report to a new driver at once tells nothing about their pace. */
const CATCH_UP_S = 1;

/** Return steps per second over stretches of time, each at its end; no stretch goes over a gap. */
export function findThroughput(
  steps: { step: readonly number[]; time: readonly number[] },
  gaps: readonly Gap[] = [],
): LineWithSteps {
  const times: number[] = [];
  const values: (number | null)[] = [];
  const at: number[] = [];
  const [first, last] = [steps.time[0], steps.time.at(-1)];
  if (first === undefined || last === undefined || last <= first) return { times, values, steps: at };
  const bin_s = Math.max(MIN_BIN_S, (last - first) / NUM_BINS);
  const isGap = makeGapFinder(gaps);
  let from = 0;
  let begin = first;
  for (let place = 1; place < steps.time.length; place += 1) {
    const time = steps.time[place] as number;
    const gap = isGap(steps.time[place - 1] as number, time);
    if (gap) {
      begin = time + (gap.isKnown ? 0 : CATCH_UP_S);
      if (values.length) {
        times.push(((steps.time[place - 1] as number) + time) / 2);
        values.push(null);
        at.push(((steps.step[place - 1] as number) + (steps.step[place] as number)) / 2);
      }
    }
    if (gap || time < begin) {
      from = place;
      continue;
    }
    const passed = time - (steps.time[from] as number);
    // The last stretch is left out until it is whole: a short one tells little.
    if (passed < bin_s) continue;
    times.push(time);
    values.push(((steps.step[place] as number) - (steps.step[from] as number)) / passed);
    at.push(steps.step[place] as number);
    from = place;
  }
  return { times, values, steps: at };
}

/** Return how to find the gap that ends between two times; null: none does. */
function makeGapFinder(gaps: readonly Gap[]): (after: number, until: number) => Gap | null {
  return (after, until) => gaps.find((gap) => after < gap.until && gap.until <= until) ?? null;
}

/** Return a line that breaks at each gap: nothing was measured there, so nothing is drawn. */
export function breakAtGaps(line: LineWithSteps, gaps: readonly Gap[]): LineWithSteps {
  if (!gaps.length) return line;
  const isGap = makeGapFinder(gaps);
  const times: number[] = [];
  const values: (number | null)[] = [];
  const steps: number[] = [];
  for (const [place, time] of line.times.entries()) {
    const before = line.times[place - 1];
    if (before !== undefined && isGap(before, time)) {
      times.push((before + time) / 2);
      values.push(null);
      steps.push(line.steps[place - 1] as number);
    }
    times.push(time);
    values.push(line.values[place] ?? null);
    steps.push(line.steps[place] as number);
  }
  return { times, values, steps };
}

/** Return a line over its steps: each step once, with its last value. */
export function drawOverSteps({ steps, values }: Pick<LineWithSteps, "steps" | "values">): Line {
  const found = new Map(steps.map((step, place) => [step, values[place] ?? null]));
  return { times: [...found.keys()], values: [...found.values()] };
}

/** Return a series as a line over time. Times never go back, whichever worker reported them. */
export function drawOverTime(series: Pick<Series, "step" | "time" | "value">): LineWithSteps {
  let latest = Number.NEGATIVE_INFINITY;
  const times = series.time.map((time) => {
    latest = Math.max(latest, time);
    return latest;
  });
  return { times, values: series.value, steps: series.step };
}

/**
 * Return the series without `step_loss`, the mean loss of each step, where it says the same as the `loss` that the
 * program logs itself.
 */
export function dropRepeated(series: readonly Series[]): readonly Series[] {
  const own = series.find(({ name, source }) => name === "loss" && source === "log");
  const ofSteps = series.find(({ source }) => source === "backward");
  if (!own || !ofSteps || own.step.length * 2 < ofSteps.step.length) return series;
  const values = new Map(ofSteps.step.map((step, place) => [step, ofSteps.value[place]]));
  const isSame = own.step.every((step, place) => !values.has(step) || values.get(step) === own.value[place]);
  return isSame ? series.filter((each) => each !== ofSteps) : series;
}

const OVER: ReadonlySet<string> = new Set(["finished", "stopped", "failed", "held", "resumed"]);
const LEAVES: ReadonlySet<string> = new Set(["died", "left", "failed", "fenced", "finished"]);

interface Known {
  /** When each attempt of the job ended; null: it goes on. */
  attempts?: readonly { ended_at: number | null }[];
  /** When steps were committed. */
  stepTimes?: readonly number[];
}

/**
 * Return how many workers trained together from each time on. Null: no driver ran, so the number is not known; it holds
 * until a driver adopts the workers.
 */
export function findWorkers(events: readonly TrainingEvent[], { attempts = [], stepTimes = [] }: Known = {}): Line {
  const times: number[] = [];
  const values: (number | null)[] = [];
  const ends = attempts.flatMap(({ ended_at }) => (ended_at === null ? [] : [ended_at]));
  let view: number | null = null;
  let formedAt = -1;
  let members = new Set<number>();
  const put = (time: number, value: number | null) => {
    if (values.length && values.at(-1) === value) return;
    times.push(Math.max(time, times.at(-1) ?? time));
    values.push(value);
  };
  const end = (time: number) => {
    if (members.size) put(time, 0);
    members = new Set();
    view = null;
  };
  let seen = events[0]?.time ?? 0;
  for (const event of events) {
    while (ends[0] !== undefined && ends[0] < event.time) end(ends.shift() as number);
    if (event.kind === "joined" && event.view !== null) {
      if (event.view !== view) members = new Set();
      members.add(event.worker ?? members.size);
      if (event.view !== view) {
        view = event.view;
        formedAt = times.length;
        times.push(event.time);
        values.push(1);
      } else if (formedAt === times.length - 1) values[formedAt] = members.size;
      else put(event.time, members.size);
    } else if (event.kind === "adopted" && members.size) {
      const step = stepTimes[placeAt(stepTimes, event.time)] ?? seen;
      put(Math.max(seen, step), null);
      put(event.time, members.size);
    } else if (event.worker === null && OVER.has(event.kind)) end(event.time);
    else if (event.worker !== null && LEAVES.has(event.kind) && members.delete(event.worker)) {
      put(event.time, members.size);
    }
    seen = event.time;
  }
  for (const time of ends) end(time);
  return { times, values };
}

/** Return the stretches in which no worker trained, or of which nothing is known, between others. */
export function findGaps({ times, values }: Line): Gap[] {
  return values.flatMap((value, place) => {
    const until = times[place + 1];
    return value || until === undefined ? [] : [{ from: times[place] as number, until, isKnown: value === 0 }];
  });
}

/** Return a line of workers over steps: how many committed each step. */
export function drawWorkersOverSteps(
  { times, values }: Line,
  steps: { step: readonly number[]; time: readonly number[] },
): Line {
  const line = new Map<number, number>();
  for (const [place, time] of times.entries()) {
    const value = values[place];
    if (value) line.set(steps.step[placeAt(steps.time, time)] ?? 0, value);
  }
  return { times: [...line.keys()], values: [...line.values()] };
}

const MARKS: Record<string, MarkKind> = {
  scaled: { tone: "resize", word: "Resized" },
  died: { tone: "death", word: "Worker died" },
  fenced: { tone: "death", word: "Worker replaced" },
  failed: { tone: "death", word: "Worker failed" },
  differed: { tone: "death", word: "Not exact" },
  resumed: { tone: "death", word: "Back to checkpoint" },
  held: { tone: "death", word: "Held" },
  adopted: { tone: "note", word: "New driver" },
  saved: { tone: "note", word: "Checkpoint" },
};

/** Stages that a job enters because of a user or of how it ended, by name. */
const STAGE_MARKS: Record<string, MarkKind> = {
  pausing: { tone: "change", word: "Pause requested" },
  paused: { tone: "change", word: "Paused" },
  stopping: { tone: "change", word: "Stop requested" },
  stopped: { tone: "change", word: "Stopped" },
  succeeded: { tone: "note", word: "Succeeded" },
  failed: { tone: "death", word: "Failed" },
};

const CHANGED: readonly [string, string][] = [
  ["priority", "Priority changed"],
  ["min_workers", "Limits changed"],
  ["max_workers", "Limits changed"],
  ["queue", "Queue changed"],
  ["labels", "Labels changed"],
];

function markOfPlatform(event: PlatformEvent): MarkKind | null {
  if (event.kind === "changed") {
    // Notes are for people: the run goes on as before.
    if (event.detail && Object.keys(event.detail).every((name) => name === "notes")) return null;
    const word = CHANGED.find(([name]) => event.detail && name in event.detail)?.[1] ?? "Changed";
    return { tone: "change", word };
  }
  if (event.kind === "driver") return { tone: "note", word: "Driver" };
  if (event.kind === "restored") return { tone: "note", word: "Store restored" };
  if (event.kind !== "stage") return null;
  const { from, to } = event.detail ?? {};
  if (to === "queued" && from === "paused") return { tone: "change", word: "Resumed" };
  if (to === "queued" && from) return { tone: "death", word: "Queued again" };
  if (to === "running" && (event.attempt ?? 1) > 1) return { tone: "note", word: "Runs again" };
  return STAGE_MARKS[String(to)] ?? null;
}

function markOfTraining(event: TrainingEvent): MarkKind | null {
  // Warnings say, for example, which files of the program have changed since the job began.
  if (event.kind === "note" && event.level !== "info") return { tone: "note", word: "Warning" };
  if (event.kind === "failed" && event.worker === null) return null;
  return MARKS[event.kind] ?? null;
}

/** Return all that changed a job, in order of time; arrows are those of all pages, whatever the driver writes. */
export function findMarks(
  events: readonly TrainingEvent[],
  ofPlatform: readonly PlatformEvent[] = [],
  steps: { step: readonly number[]; time: readonly number[] } = { step: [], time: [] },
): Mark[] {
  const mark = (kind: MarkKind | null, { time, reason }: { time: number; reason: string }, step: number | null) =>
    kind ? [{ ...kind, time, step, reason: reason.replaceAll(" -> ", " → ") }] : [];
  const stepAt = (time: number) => steps.step[placeAt(steps.time, time)] ?? (steps.step.length ? 0 : null);
  return [
    ...events.flatMap((event) => mark(markOfTraining(event), event, event.step ?? stepAt(event.time))),
    ...ofPlatform.flatMap((event) => mark(markOfPlatform(event), event, stepAt(event.time))),
  ].sort((one, other) => one.time - other.time);
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
