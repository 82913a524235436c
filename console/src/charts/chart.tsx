/** One chart of lines over time (or steps). Charts of one group share their cursor and their range. */

import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./charts.css";
import { formatCount, formatValue } from "@/format/numbers";
import { formatTime } from "@/format/time";
import { useLook } from "@/layout/theme";
import { type Line, type Mark, placeAt } from "./series";

export interface ChartLine extends Line {
  label: string;
  /** A colour as CSS, may be a token such as `var(--job-1)`. */
  colour: string;
  /** A step line: each value holds until the next. */
  isStep?: boolean;
  isFilled?: boolean;
  isDashed?: boolean;
  /** Lines that lie exactly below it, and are seen through its gaps. */
  numCovered?: number;
  /** The step of each point. */
  steps?: readonly number[];
}

export type Range = readonly [number, number];

interface ChartProps {
  title: string;
  /** What stands behind a value, such as `/s`. */
  unit?: string;
  /** What stands behind the last value, of where it is from. */
  lastNote?: string;
  lines: readonly ChartLine[];
  marks?: readonly Mark[];
  /** Charts with the same group share their cursor. */
  group: string;
  range: Range;
  onRange?: (range: Range | null) => void;
  /** Called with the x under the cursor when the chart is pressed. */
  onPick?: (x: number) => void;
  isLog?: boolean;
  fromZero?: boolean;
  height?: number;
  /** What x is: a time since 1970, or a number. */
  x?: "time" | "number";
  /** Return what x is under the cursor, such as `step 12`. */
  sayX?: (x: number) => string;
}

/** Distance in pixels at which a mark tells its reason. */
const TOLD_STEPS = 12;
const NEAR_MARK_PIXELS = 7;

const makeSteps = uPlot.paths.stepped?.({ align: 1 }) ?? (() => null);

/** A chart. */
export function Chart(props: ChartProps) {
  const { title, unit = "", lines, marks = [], group, range, height = 170, isLog = false, fromZero = false } = props;
  const { x: kind = "time" } = props;
  const box = useRef<HTMLDivElement>(null);
  const told = useRef<HTMLSpanElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const isUnder = useRef(false);
  const look = useLook();
  const data = useMemo(() => joinLines(lines), [lines]);
  const shape = JSON.stringify(
    lines.map(({ label, colour, isStep, isFilled, isDashed, numCovered }) => [
      ...[label, colour, isStep, isFilled, isDashed, numCovered],
    ]),
  );

  // biome-ignore lint/correctness/useExhaustiveDependencies: rebuilt only when its shape or the theme changes
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const colours = readColours(element, lines);
    const tellAt = (chart: uPlot) => {
      if (told.current) told.current.textContent = sayCursor(chart, latest.current, kind);
      // Charts of a group share their cursor; a mark is explained in the chart under the pointer alone.
      showTip(chart, tip.current, isUnder.current ? (latest.current.marks ?? []) : [], kind);
    };
    const options: uPlot.Options = {
      width: element.clientWidth || 600,
      height,
      legend: { show: false },
      padding: [10, 22, 2, 0],
      cursor: {
        sync: { key: group, scales: ["x", null] },
        drag: { x: true, y: false, setScale: false },
        points: { size: 7 },
        focus: { prox: 24 },
      },
      scales: {
        x: { time: kind === "time", range: () => [...latest.current.range] as [number, number] },
        y: isLog ? { distr: 3 } : { range: (_, low, high) => padRange(low, high, fromZero) },
      },
      axes: [
        makeAxis(colours, { space: 70, size: 26, values: kind === "time" ? sayTimes : sayValues }),
        makeAxis(colours, { size: 50, values: sayValues }),
      ],
      series: [
        {},
        ...lines.map((line, place): uPlot.Series => {
          const colour = colours.lines[place] as string;
          return {
            label: line.label,
            stroke: colour,
            width: 1.75,
            spanGaps: false,
            points: { show: true, size: 5, filter: line.isStep ? findLonely : findDots },
            ...(line.isStep ? { paths: makeSteps } : {}),
            ...(line.isFilled ? { fill: `color-mix(in srgb, ${colour} 16%, transparent)` } : {}),
            ...(line.isDashed ? { dash: [5, 4] } : {}),
            ...(line.numCovered ? { dash: dashOver(line.numCovered) } : {}),
          };
        }),
      ],
      hooks: {
        draw: [(chart) => drawMarks(chart, latest.current.marks ?? [], colours, kind)],
        setCursor: [tellAt],
        setSelect: [
          (chart) => {
            if (chart.select.width < 8) return;
            const from = chart.posToVal(chart.select.left, "x");
            const to = chart.posToVal(chart.select.left + chart.select.width, "x");
            chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            latest.current.onRange?.([from, to]);
          },
        ],
      },
    };
    const made = new uPlot(options, data, element);
    plot.current = made;
    const press = { x: 0 };
    const down = (event: MouseEvent) => {
      press.x = event.clientX;
    };
    const up = (event: MouseEvent) => {
      if (Math.abs(event.clientX - press.x) > 4 || made.cursor.left === undefined || made.cursor.left < 0) return;
      latest.current.onPick?.(made.posToVal(made.cursor.left, "x"));
    };
    const back = () => latest.current.onRange?.(null);
    made.over.addEventListener("mouseenter", () => {
      isUnder.current = true;
    });
    made.over.addEventListener("mouseleave", () => {
      isUnder.current = false;
      tellAt(made);
    });
    made.over.addEventListener("mousedown", down);
    made.over.addEventListener("mouseup", up);
    made.over.addEventListener("dblclick", back);
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0) made.setSize({ width: element.clientWidth, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, look, group, height, isLog, fromZero, kind]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: marks and range are redrawn with the data
  useEffect(() => {
    plot.current?.setData(data, true);
  }, [data, marks, range[0], range[1]]);

  return (
    <figure className="chart" aria-label={sayWhole(title, unit, lines)}>
      <figcaption className="chart-head">
        <span className="chart-title">{nameChart(title, unit, lines.length)}</span>
        {lines.length > 1 && (
          <span className="chart-legend">
            {lines.map((line) => (
              <span key={line.label}>
                <span className="chart-dash" style={{ background: line.colour }} />
                {line.label}
              </span>
            ))}
          </span>
        )}
        <span className="chart-told number" ref={told}>
          {sayLast(props)}
        </span>
      </figcaption>
      <div className="chart-box" ref={box}>
        <div className="chart-tip" ref={tip} hidden />
      </div>
    </figure>
  );
}

/** Return the heading of a chart: with the unit, where no single value beside it has the unit. */
export function nameChart(title: string, unit: string, numLines: number): string {
  return numLines > 1 && unit.trim() ? `${title} (${unit.trim()})` : title;
}

/** Few points are drawn as dots: a line between points that are close to each other is too short to be seen. */
const MAX_DOTS = 24;

/** Return the places of points that are drawn as dots: all of a few, else those without neighbours. */
export function findDots(chart: Pick<uPlot, "data">, series: number): number[] {
  const values = chart.data[series] as (number | null | undefined)[];
  const found = values.flatMap((value, place) => (value === null || value === undefined ? [] : [place]));
  return found.length <= MAX_DOTS ? found : findLonely(chart, series);
}

/** Return the places of points that have no neighbour to which a line leads; they are drawn as dots. */
function findLonely(chart: Pick<uPlot, "data">, series: number): number[] {
  const values = (chart.data[series] as (number | null | undefined)[])
    .map((value, place) => [value, place] as const)
    .filter(([value]) => value !== undefined);
  return values.flatMap(([value, place], at) =>
    value !== null && (values[at - 1]?.[0] ?? null) === null && (values[at + 1]?.[0] ?? null) === null ? [place] : [],
  );
}

const DASH_PIXELS = 24;

/** Return dashes and gaps that cover half of what the line below shows. */
function dashOver(numCovered: number): number[] {
  const dash = DASH_PIXELS / 2 ** numCovered;
  return [dash, DASH_PIXELS - dash];
}

/** Return lines with times of their own as columns of one table, as uPlot wants them. */
export function joinLines(lines: readonly Line[]): uPlot.AlignedData {
  const first = lines[0];
  if (lines.length === 1 && first) return [[...first.times], [...first.values]] as uPlot.AlignedData;
  const tables = lines.filter((line) => line.times.length);
  if (tables.length !== lines.length) {
    // A line without points has its column still.
    const times = [...new Set(tables.flatMap((line) => line.times))].sort((one, other) => one - other);
    const columns = lines.map((line) => {
      // Null is a gap; where a line has no point at all, it goes on.
      const values = new Map(line.times.map((time, place) => [time, line.values[place] ?? null]));
      return times.map((time) => values.get(time));
    });
    return [times, ...columns] as uPlot.AlignedData;
  }
  return uPlot.join(lines.map((line) => [[...line.times], [...line.values]] as uPlot.AlignedData));
}

function sayCursor(chart: uPlot, props: ChartProps, kind: string): string {
  const { lines, unit = "" } = props;
  const place = chart.cursor.idx;
  if (place === null || place === undefined) return sayLast(props);
  const left = chart.cursor.left ?? -1;
  if (left < 0) return sayLast(props);
  const x = chart.posToVal(left, "x");
  // The nearest point before the cursor: lines have points of their own.
  const places = lines.map((line) => placeAt(line.times, x));
  const values = lines.map((line, at) => {
    const value = formatValue(line.values[places[at] as number] ?? null);
    return lines.length > 1 ? `${line.label} ${value}` : `${value}${unit}`;
  });
  const step = lines[0]?.steps?.[places[0] as number];
  const where = [...(step === undefined ? [] : [`step ${formatCount(step)}`]), props.sayX?.(x) ?? sayX(x, kind)];
  return `${values.join("  ")} · ${where.join(" · ")}`;
}

function sayX(x: number, kind: string): string {
  return kind === "time" ? formatTime(x) : formatValue(x);
}

function sayLast({ lines, unit = "", lastNote = "" }: ChartProps): string {
  const only = lines[0];
  if (lines.every((line) => !line.values.length)) return "no values";
  if (lines.length !== 1 || !only) return "";
  return `${formatValue(only.values.at(-1))}${unit}${lastNote}`;
}

function sayWhole(title: string, unit: string, lines: readonly ChartLine[]): string {
  const told = lines.map(
    (line) => `${line.label}: ${line.isStep ? saySteps(line) : formatValue(line.values.at(-1))}${unit}`,
  );
  return `Chart of ${title}. ${lines.every((line) => line.isStep) ? "" : "Last values: "}${told.join(", ")}`;
}

/** All steps of a line in words, such as "1 → 4 → 2"; of a long one the last. */
function saySteps({ values }: ChartLine): string {
  const steps = values.filter((value, place) => place === 0 || value !== values[place - 1]);
  const shown = steps.slice(-TOLD_STEPS).map((value) => formatValue(value));
  return `${steps.length > TOLD_STEPS ? "… → " : ""}${shown.join(" → ")}`;
}

function placeOf(mark: Mark, kind: string): number | null {
  return kind === "time" ? mark.time : mark.step;
}

function showTip(chart: uPlot, tip: HTMLDivElement | null, marks: readonly Mark[], kind: string): void {
  if (!tip) return;
  const left = chart.cursor.left ?? -1;
  const near =
    left < 0 ? undefined : findNear(marks, (mark) => Math.abs(chart.valToPos(placeOf(mark, kind) ?? -1, "x") - left));
  tip.hidden = !near;
  if (!near) return;
  tip.textContent = `${near.word} at ${formatTime(near.time)}: ${near.reason}`;
  const at = chart.valToPos(placeOf(near, kind) ?? 0, "x") + chart.over.offsetLeft;
  const width = Math.min(420, chart.width - 16);
  tip.style.maxWidth = `${width}px`;
  tip.style.left = `${Math.max(8, Math.min(at + 10, chart.width - width - 8))}px`;
}

function findNear(marks: readonly Mark[], distance: (mark: Mark) => number): Mark | undefined {
  let found: Mark | undefined;
  let least = NEAR_MARK_PIXELS;
  for (const mark of marks) {
    const far = distance(mark);
    if (far <= least) [found, least] = [mark, far];
  }
  return found;
}

interface Colours {
  text: string;
  line: string;
  font: string;
  marks: Record<Mark["tone"], string>;
  lines: string[];
}

function readColours(element: HTMLElement, lines: readonly ChartLine[]): Colours {
  const style = getComputedStyle(element);
  const read = (colour: string) => {
    const found = /^var\((--[\w-]+)\)$/.exec(colour);
    return found ? style.getPropertyValue(found[1] as string).trim() : colour;
  };
  return {
    text: read("var(--text-3)"),
    line: read("var(--line)"),
    font: `11px ${style.fontFamily}`,
    marks: {
      resize: read("var(--accent)"),
      death: read("var(--bad)"),
      change: read("var(--text-2)"),
      note: read("var(--line-strong)"),
    },
    lines: lines.map((line) => read(line.colour)),
  };
}

function makeAxis(colours: Colours, more: Partial<uPlot.Axis>): uPlot.Axis {
  return {
    stroke: colours.text,
    font: colours.font,
    grid: { stroke: colours.line, width: 1 },
    ticks: { show: false },
    gap: 6,
    ...more,
  };
}

function drawMarks(chart: uPlot, marks: readonly Mark[], colours: Colours, kind: string): void {
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  for (const mark of marks) {
    const place = placeOf(mark, kind);
    if (place === null) continue;
    const x = Math.round(chart.valToPos(place, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = colours.marks[mark.tone];
    ctx.fillStyle = colours.marks[mark.tone];
    ctx.lineWidth = ratio;
    ctx.setLineDash(mark.tone === "note" ? [2 * ratio, 3 * ratio] : []);
    ctx.globalAlpha = mark.tone === "note" ? 0.8 : 0.75;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.globalAlpha = 1;
    if (mark.tone === "note") continue;
    // Their shapes tell them apart too: a flag for a resize, a cross for a death, a square for what a user changed.
    const size = 5 * ratio;
    ctx.setLineDash([]);
    ctx.beginPath();
    if (mark.tone === "resize") {
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x + size * 1.4, bbox.top + size * 0.8);
      ctx.lineTo(x, bbox.top + size * 1.6);
      ctx.fill();
    } else if (mark.tone === "change") {
      ctx.fillRect(x - size * 0.6, bbox.top, size * 1.2, size * 1.2);
    } else {
      ctx.lineWidth = 1.8 * ratio;
      ctx.moveTo(x - size * 0.7, bbox.top);
      ctx.lineTo(x + size * 0.7, bbox.top + size * 1.4);
      ctx.moveTo(x + size * 0.7, bbox.top);
      ctx.lineTo(x - size * 0.7, bbox.top + size * 1.4);
      ctx.stroke();
    }
  }
  ctx.restore();
}

function padRange(low: number | null, high: number | null, fromZero: boolean): [number, number] {
  if (low === null || high === null) return [0, 1];
  const from = fromZero ? Math.min(0, low) : low;
  const room = (high - from || Math.abs(high) || 1) * 0.08;
  return [fromZero && from === 0 ? 0 : from - room, high + room];
}

function sayValues(_chart: uPlot, splits: number[]): string[] {
  return splits.map((split) => (split === null ? "" : formatValue(split, 3)));
}

/** Return what stands at the splits of an axis of time. */
export function sayTimes(
  _chart: unknown,
  splits: number[],
  _axis: number,
  _space: number,
  increment: number,
): string[] {
  return splits.map((split) => {
    // Between two seconds stands nothing: it would be the same time once more.
    if (increment < 1 && Math.abs(split - Math.round(split)) > 1e-3) return "";
    const at = new Date(split * 1000);
    if (increment >= 86400) return at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    const told = at.toLocaleTimeString("en-GB");
    return increment >= 60 ? told.slice(0, 5) : told;
  });
}
