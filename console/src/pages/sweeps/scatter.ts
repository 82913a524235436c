/** Where the trials of a sweep are in the picture of the metric over one parameter. Draws nothing. */

import type { Trial, Tunable } from "@/api/types";
import { formatShort } from "@/format/numbers";

export interface Dot {
  trial: Trial;
  /** From 0 at the left to 1 at the right. */
  x: number;
  /** From 0 at the lowest value to 1 at the highest. */
  y: number;
  value: number;
}

export interface Scatter {
  dots: Dot[];
  /** What is written below the picture: at which place. */
  ticks: { x: number; label: string }[];
  low: number;
  high: number;
}

const MOST_LABELS = 6;

/** The metric of a trial: its value, or while it runs the last one that was compared. */
export function metricOf(trial: Trial): number | null {
  return trial.value ?? trial.reports.at(-1)?.value ?? null;
}

/** Place trials by one parameter. Trials without a value are left out. */
export function placeTrials(trials: readonly Trial[], name: string, tunable: Tunable): Scatter {
  const shown = trials.flatMap((trial) => {
    const value = metricOf(trial);
    return value === null ? [] : [{ trial, value }];
  });
  const values = shown.map((one) => one.value);
  const low = values.length > 0 ? Math.min(...values) : 0;
  const high = values.length > 0 ? Math.max(...values) : 1;
  const place = makePlace(tunable);
  const dots = shown.flatMap(({ trial, value }) => {
    const x = place(trial.parameters[name]);
    return x === null ? [] : [{ trial, value, x, y: high > low ? (value - low) / (high - low) : 0.5 }];
  });
  return { dots, ticks: makeTicks(tunable, place), low, high };
}

type Place = (value: unknown) => number | null;

function makePlace({ values, low, high, log }: Tunable): Place {
  if (values) {
    // One value stands in the middle, several have equal distances.
    return (value) => {
      const at = values.indexOf(value as (typeof values)[number]);
      return at < 0 ? null : (at + 0.5) / values.length;
    };
  }
  const scale = log ? Math.log : (value: number) => value;
  const first = scale(low ?? 0);
  const last = scale(high ?? 1);
  return (value) => (typeof value === "number" ? (scale(value) - first) / (last - first) : null);
}

function makeTicks({ values, low, high, log }: Tunable, place: Place): { x: number; label: string }[] {
  if (values) {
    const every = Math.ceil(values.length / MOST_LABELS);
    return values.filter((_, at) => at % every === 0).map((value) => ({ x: place(value) ?? 0, label: String(value) }));
  }
  const [first, last] = [low ?? 0, high ?? 1];
  const middle = log ? Math.sqrt(first * last) : (first + last) / 2;
  return [first, middle, last].map((value, at) => ({ x: at / 2, label: formatShort(value) }));
}
