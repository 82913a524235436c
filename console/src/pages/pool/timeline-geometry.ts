/** Where the lines, areas and bars of the allocation timeline stand. Draws nothing. Times are seconds since 1970. */

export interface Steps {
  /** Ascending. */
  times: readonly number[];
  /** From each time on. */
  values: readonly number[];
}

/** Return the value of a step line at a time; before its first time it is 0. */
export function valueAt({ times, values }: Steps, time: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] as number) <= time) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? 0 : (values[low - 1] ?? 0);
}

/** Return the part of a step line between two times: it begins at the first of them. */
export function cutSteps(steps: Steps, since: number, until: number): Steps {
  const times = [since];
  const values = [valueAt(steps, since)];
  for (const [place, time] of steps.times.entries()) {
    if (time <= since || time >= until) continue;
    times.push(time);
    values.push(steps.values[place] ?? 0);
  }
  return { times, values };
}

export interface Span {
  from: number;
  to: number;
  value: number;
}

/** Return the stretches in which a step line is above 0. */
export function findSpans(steps: Steps, since: number, until: number): Span[] {
  const { times, values } = cutSteps(steps, since, until);
  const spans: Span[] = [];
  for (const [place, from] of times.entries()) {
    const value = values[place] ?? 0;
    const to = times[place + 1] ?? until;
    if (value <= 0 || to <= from) continue;
    const last = spans.at(-1);
    if (last && last.to === from && last.value === value) last.to = to;
    else spans.push({ from, to, value });
  }
  return spans;
}

/** A stretch in which `num` lines have the same value; the line is the one at `place` among them. */
export interface SharedSpan extends Span {
  place: number;
  num: number;
}

/**
 * Return, for each step line, the stretches in which it is above 0, with how many lines have the same value there. Lines
 * that share a value share their stretches too, so dashes of one are gaps of the others.
 */
export function findShared(lines: readonly Steps[], since: number, until: number): SharedSpan[][] {
  const cut = lines.map((line) => cutSteps(line, since, until));
  const times = [...new Set(cut.flatMap((line) => line.times))].sort((one, other) => one - other);
  const at = cut.map(() => 0);
  const found: SharedSpan[][] = lines.map(() => []);
  let open = new Map<number, { key: string; spans: SharedSpan[] }>();
  for (const [index, from] of times.entries()) {
    const to = times[index + 1] ?? until;
    const groups = new Map<number, number[]>();
    for (const [line, steps] of cut.entries()) {
      while (at[line] !== undefined && (steps.times[at[line] + 1] ?? Number.POSITIVE_INFINITY) <= from) at[line] += 1;
      const value = steps.values[at[line] ?? 0] ?? 0;
      if (value > 0) groups.set(value, [...(groups.get(value) ?? []), line]);
    }
    const now: typeof open = new Map();
    for (const [value, members] of groups) {
      const key = members.join(" ");
      const before = open.get(value);
      if (before?.key === key) {
        for (const span of before.spans) span.to = to;
        now.set(value, before);
        continue;
      }
      const spans = members.map((_, place) => ({ from, to, value, place, num: members.length }));
      for (const [place, line] of members.entries()) found[line]?.push(spans[place] as SharedSpan);
      now.set(value, { key, spans });
    }
    open = now;
  }
  return found;
}

/** Return the sum of step lines as one. */
export function addSteps(lines: readonly Steps[]): Steps {
  const changes = new Map<number, number>();
  for (const { times, values } of lines) {
    for (const [place, time] of times.entries()) {
      const change = (values[place] ?? 0) - (place ? (values[place - 1] ?? 0) : 0);
      changes.set(time, (changes.get(time) ?? 0) + change);
    }
  }
  const times = [...changes.keys()].sort((one, other) => one - other);
  let sum = 0;
  const values = times.map((time) => {
    sum += changes.get(time) ?? 0;
    return sum;
  });
  return { times, values };
}

/** Return the area below a step line between two times. */
export function measureArea(steps: Steps, since: number, until: number): number {
  return findSpans(steps, since, until).reduce((sum, { from, to, value }) => sum + (to - from) * value, 0);
}

export interface Layer {
  times: readonly number[];
  lower: readonly number[];
  upper: readonly number[];
}

/** Put step lines on top of one another, the first one at the bottom; all layers have the same times. */
export function stackSteps(lines: readonly Steps[], since: number, until: number): Layer[] {
  const cut = lines.map((line) => cutSteps(line, since, until));
  const times = [...new Set(cut.flatMap((line) => line.times))].sort((one, other) => one - other);
  let ground: number[] = times.map(() => 0);
  return cut.map((line) => {
    const lower = ground;
    const upper = times.map((time, place) => (lower[place] as number) + valueAt(line, time));
    ground = upper;
    return { times, lower, upper };
  });
}

export type Scale = (value: number) => number;

/** Return a scale from one stretch to another, cut off at its ends. */
export function makeScale(from: number, to: number, start: number, end: number): Scale {
  const size = to - from || 1;
  return (value) => round(start + ((Math.min(Math.max(value, from), to) - from) / size) * (end - start));
}

/** Return a step line as SVG. */
export function drawSteps({ times, values }: Steps, until: number, x: Scale, y: Scale): string {
  if (times.length === 0) return "";
  let path = "";
  for (const [place, time] of times.entries()) {
    const value = values[place] ?? 0;
    if (place === 0) path = `M${x(time)} ${y(value)}`;
    else if (value !== values[place - 1]) path += `H${x(time)}V${y(value)}`;
  }
  return `${path}H${x(until)}`;
}

/** Return a layer as SVG: what lies between its two step lines. */
export function drawLayer({ times, lower, upper }: Layer, until: number, x: Scale, y: Scale): string {
  if (times.length === 0) return "";
  const above = drawSteps({ times, values: upper }, until, x, y);
  let below = "";
  for (let place = times.length - 1; place >= 0; place -= 1) {
    const right = times[place + 1] ?? until;
    below += `${place === times.length - 1 ? `V${y(lower[place] as number)}` : `H${x(right)}V${y(lower[place] as number)}`}`;
  }
  return `${above}${below}H${x(times[0] as number)}Z`;
}

const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const DAY_S = 86400;

/** Return round times between two, at most so many. `offset_s`: by how much the clock on the wall is ahead of UTC. */
export function findTimeTicks(since: number, until: number, maxTicks: number, offset_s = 0): number[] {
  const span = until - since;
  if (span <= 0 || maxTicks < 1) return [];
  let step = TIME_STEPS_S.find((each) => span / each <= maxTicks);
  step ??= Math.ceil(span / maxTicks / DAY_S) * DAY_S;
  const ticks: number[] = [];
  for (let tick = Math.ceil((since + offset_s) / step) * step - offset_s; tick <= until; tick += step) ticks.push(tick);
  return ticks;
}

/** Return round counts from 0 to the largest one, at most so many beside 0. */
export function findCountTicks(max: number, maxTicks = 5): number[] {
  const rough = Math.max(1, max / maxTicks);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((each) => each * size).find((each) => each >= rough) ?? rough);
  const ticks: number[] = [];
  for (let tick = 0; tick <= max; tick += step) ticks.push(tick);
  return ticks;
}

/** Push labels apart so that none covers another: places from the top, in the order of the wanted ones. */
export function spreadLabels(wanted: readonly number[], apart: number, top: number, bottom: number): number[] {
  const order = wanted.map((place, index) => ({ place, index })).sort((one, other) => one.place - other.place);
  let last = top - apart;
  for (const label of order) {
    label.place = Math.max(label.place, last + apart);
    last = label.place;
  }
  let next = bottom + apart;
  for (const label of order.toReversed()) {
    label.place = Math.min(label.place, next - apart);
    next = label.place;
  }
  const places: number[] = [];
  for (const { place, index } of order) places[index] = place;
  return places;
}

function round(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}
