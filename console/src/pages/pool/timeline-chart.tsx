/** The allocation timeline as a picture: lines, areas on top of one another, or bars. Asks nothing. */

import { type CSSProperties, type KeyboardEvent, type PointerEvent, useRef, useState } from "react";
import { countOf } from "@/format/numbers";
import { formatTime } from "@/format/time";
import { cutName } from "@/jobs/names";
import { jobColour, jobMark } from "@/parts/colour";
import { useWidth } from "@/parts/windowing";
import type { Handover, Timeline, TimelineItem } from "./pool-data";
import {
  cutSteps,
  drawLayer,
  drawSteps,
  findCountTicks,
  findShared,
  findSpans,
  findTimeTicks,
  makeScale,
  type Scale,
  type SharedSpan,
  type Steps,
  spreadLabels,
  stackSteps,
  valueAt,
} from "./timeline-geometry";

export type Look = "lines" | "stacked" | "gantt";

interface ChartProps {
  timeline: Timeline;
  look: Look;
  since: number;
  until: number;
  moves: readonly Handover[];
  lit: string | null;
  /** The time under the cursor; null: none. */
  cursor: number | null;
  onCursor: (time: number | null) => void;
  onZoom: (since: number, until: number) => void;
}

const HEIGHT = 240;
const ROW_HEIGHT = 26;
const LEFT = 34;
const TOP = 10;
const AXIS = 24;
/** Labels have as much room as the longest one needs, between these, and no more than their part of the whole. */
const LABEL_WIDTH = 176;
const MAX_LABEL_WIDTH = 340;
const LABEL_PART = 0.24;
const LABEL_SPACE = 11;
/** A letter of a label, on average, and how many letters a count before it takes. */
const LETTER_WIDTH = 6.8;
const COUNT_LETTERS = 3;
const MAX_LABELS = 8;
/** Lines of equal height take turns: each is drawn for so many pixels. */
const DASH = 9;
const DOT = 1.5;
const DOTS = { strokeDasharray: `${DOT} 6` };
const LEAST_ZOOM_PX = 8;

interface Frame {
  /** So many letters of a name fit into a label; 0: there are no labels. */
  letters: number;
  since: number;
  until: number;
  x: Scale;
  right: number;
  bottom: number;
}

export function stepsOf(item: TimelineItem) {
  return { times: item.times, values: item.slots };
}

/** The chart. Drag over it to look closer; arrows move its cursor. */
export function TimelineChart(props: ChartProps) {
  const { timeline, look, since, until, cursor, onCursor, onZoom } = props;
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const isLabelled = look === "gantt" || (look === "lines" && timeline.items.length <= MAX_LABELS);
  const labelWidth = isLabelled && width > 640 ? findLabelWidth(timeline, width) : 0;
  const letters = Math.max(0, Math.floor((labelWidth - LABEL_SPACE) / LETTER_WIDTH) - COUNT_LETTERS);
  const left = look === "gantt" ? Math.max(LEFT, labelWidth) : LEFT;
  const right = width - (look === "lines" ? Math.max(8, labelWidth) : 8);
  const height = look === "gantt" ? Math.max(80, timeline.items.length * ROW_HEIGHT + TOP + AXIS) : HEIGHT;
  const bottom = height - AXIS;
  const frame: Frame = { letters, since, until, x: makeScale(since, until, left, right), right, bottom };

  const timeAt = (event: PointerEvent<Element>) => {
    const at = event.clientX - (box.current?.getBoundingClientRect().left ?? 0);
    return since + ((Math.min(Math.max(at, left), right) - left) / Math.max(1, right - left)) * (until - since);
  };
  const press = (event: KeyboardEvent) => {
    const step = (until - since) / 60;
    const at = cursor ?? until;
    if (event.key === "ArrowLeft") onCursor(Math.max(since, at - step));
    else if (event.key === "ArrowRight") onCursor(Math.min(until, at + step));
    else if (event.key === "Escape") onCursor(null);
    else return;
    event.preventDefault();
  };
  const release = () => {
    if (drag && Math.abs(frame.x(drag.to) - frame.x(drag.from)) >= LEAST_ZOOM_PX) {
      onZoom(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to));
    }
    setDrag(null);
  };
  return (
    <div
      className="timeline"
      ref={box}
      style={{ height }}
      role="slider"
      tabIndex={0}
      aria-label="Slots in use over time"
      aria-valuemin={Math.round(since)}
      aria-valuemax={Math.round(until)}
      aria-valuenow={Math.round(cursor ?? until)}
      aria-valuetext={sayAt(timeline, cursor ?? until)}
      onKeyDown={press}
      onPointerMove={(event) => {
        const time = timeAt(event);
        onCursor(time);
        if (drag) setDrag({ from: drag.from, to: time });
      }}
      onPointerDown={(event) => {
        if (event.button !== 0 || event.pointerType === "touch") return;
        event.currentTarget.setPointerCapture(event.pointerId);
        setDrag({ from: timeAt(event), to: timeAt(event) });
      }}
      onPointerUp={release}
      onPointerCancel={() => setDrag(null)}
      onPointerLeave={() => !drag && onCursor(null)}
    >
      {width > 0 && (
        <svg width={width} height={height} aria-hidden="true">
          <Hatch />
          <TimeAxis frame={frame} left={left} />
          {look === "gantt" ? (
            <Bars {...props} frame={frame} left={left} />
          ) : (
            <Counts {...props} frame={frame} left={left} />
          )}
          {drag && (
            <rect
              x={Math.min(frame.x(drag.from), frame.x(drag.to))}
              width={Math.abs(frame.x(drag.to) - frame.x(drag.from))}
              y={TOP}
              height={bottom - TOP}
              className="timeline-drag"
            />
          )}
          {cursor !== null && cursor >= since && cursor <= until && (
            <line x1={frame.x(cursor)} x2={frame.x(cursor)} y1={TOP} y2={bottom} className="timeline-cursor" />
          )}
        </svg>
      )}
    </div>
  );
}

function findLabelWidth({ items }: Timeline, width: number): number {
  const longest = Math.max(0, ...items.map((item) => item.title.length));
  const wanted = (longest + COUNT_LETTERS) * LETTER_WIDTH + LABEL_SPACE;
  const most = Math.min(MAX_LABEL_WIDTH, width * LABEL_PART);
  return Math.floor(Math.max(LABEL_WIDTH, Math.min(wanted, most))) + 1;
}

function sayAt(timeline: Timeline, time: number): string {
  const held = timeline.items.map((item) => ({ title: item.title, num: valueAt(stepsOf(item), time) }));
  const told = held.filter(({ num }) => num > 0).map(({ title, num }) => `${title} ${num}`);
  return `${formatTime(time)}: ${told.length ? told.join(", ") : "no slots in use"}`;
}

function Hatch() {
  return (
    <defs>
      <pattern id="no-slots" width={6} height={6} patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <line x1={0} x2={0} y1={0} y2={6} stroke="var(--line-strong)" strokeWidth={1.5} />
      </pattern>
      <pattern id="mark-1" width={8} height={8} patternUnits="userSpaceOnUse">
        <circle cx={4} cy={4} r={1.5} fill="var(--surface)" />
      </pattern>
      <pattern id="mark-2" width={8} height={6} patternUnits="userSpaceOnUse">
        <line x1={0} x2={8} y1={3} y2={3} stroke="var(--surface)" strokeWidth={1.5} />
      </pattern>
    </defs>
  );
}

function TimeAxis({ frame, left }: { frame: Frame; left: number }) {
  const offset_s = -new Date(frame.until * 1000).getTimezoneOffset() * 60;
  const maxTicks = Math.max(2, Math.floor((frame.right - left) / 96));
  const ticks = findTimeTicks(frame.since, frame.until, maxTicks, offset_s);
  const isFine = frame.until - frame.since < maxTicks * 60;
  return (
    <g className="timeline-axis">
      {ticks.map((tick) => (
        <g key={tick} transform={`translate(${frame.x(tick)} 0)`}>
          <line y1={TOP} y2={frame.bottom} />
          <text y={frame.bottom + 16} textAnchor="middle">
            {sayTick(tick, frame, isFine)}
          </text>
        </g>
      ))}
    </g>
  );
}

function sayTick(tick: number, frame: Frame, isFine: boolean): string {
  const at = new Date(tick * 1000);
  const isMidnight = at.getHours() === 0 && at.getMinutes() === 0;
  if (frame.until - frame.since > 86400 && isMidnight) {
    return at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  }
  return at.toLocaleTimeString("en-GB", {
    hour: "2-digit",
    minute: "2-digit",
    ...(isFine ? { second: "2-digit" } : {}),
  });
}

type Inner = ChartProps & { frame: Frame; left: number };

function Counts(props: Inner) {
  const { timeline, look, since, until, moves, frame, left } = props;
  const pool = cutSteps(timeline.num_slots, since, until);
  const most = Math.max(1, ...pool.values, ...timeline.items.flatMap((item) => item.slots));
  const max = look === "lines" ? most : Math.max(1, ...pool.values, highest(timeline, since, until));
  const y = makeScale(0, max, frame.bottom, TOP + 6);
  return (
    <>
      <g className="timeline-axis">
        {findCountTicks(max).map((tick) => (
          <g key={tick} transform={`translate(0 ${y(tick)})`}>
            <line x1={left} x2={frame.right} />
            <text x={left - 8} y={4} textAnchor="end">
              {tick}
            </text>
          </g>
        ))}
      </g>
      {look === "lines" &&
        moves.map((move) =>
          move.time > since && move.time < until ? (
            <line
              key={`${move.time} ${move.slots[0]}`}
              x1={frame.x(move.time)}
              x2={frame.x(move.time)}
              y1={TOP}
              y2={frame.bottom}
              className="timeline-move"
            />
          ) : null,
        )}
      {look === "lines" ? <Lines {...props} y={y} /> : <Layers {...props} y={y} />}
      <path d={drawSteps(pool, until, frame.x, y)} className="timeline-pool" />
    </>
  );
}

function highest(timeline: Timeline, since: number, until: number): number {
  const layers = stackSteps(timeline.items.map(stepsOf), since, until);
  return Math.max(0, ...(layers.at(-1)?.upper ?? []));
}

function dimOf(key: string, lit: string | null): number {
  return lit !== null && lit !== key ? 0.2 : 1;
}

function Lines({ timeline, since, until, lit, frame, y }: Inner & { y: Scale }) {
  const lines = timeline.items.map(stepsOf);
  const shared = findShared(lines, since, until);
  const ends = lines.map((line) => y(valueAt(line, until)));
  const labels = spreadLabels(ends, 17, TOP + 8, frame.bottom - 2);
  return (
    <>
      {timeline.items.map((item, place) => (
        <g key={item.key} opacity={dimOf(item.key, lit)} style={{ stroke: jobColour(item.key) }}>
          <Line d={drawRises(lines[place] as Steps, since, until, frame.x, y)} mark={jobMark(item.key)} />
          {groupShared(shared[place] ?? []).map(({ num, at, spans }) => (
            <Line
              key={`${num} ${at}`}
              d={spans.map(({ from, to, value }) => `M${frame.x(from)} ${y(value)}H${frame.x(to)}`).join("")}
              mark={jobMark(item.key)}
              num={num}
              at={at}
            />
          ))}
          {frame.letters > 0 && valueAt(stepsOf(item), until) > 0 && (
            <>
              <path
                d={`M${frame.right} ${ends[place]}l8 ${(labels[place] ?? 0) - (ends[place] ?? 0)}`}
                className="timeline-lead"
              />
              <text
                x={frame.right + LABEL_SPACE}
                y={(labels[place] ?? 0) + 4}
                className="timeline-name"
                stroke="none"
                fill={jobColour(item.key)}
              >
                <title>{item.title}</title>
                {valueAt(stepsOf(item), until)} {cutName(item.title, frame.letters)}
              </text>
            </>
          )}
        </g>
      ))}
    </>
  );
}

interface LineProps {
  d: string;
  mark: number | undefined;
  /** Number of lines that take turns here, and the turn of this one. */
  num?: number;
  at?: number;
}

/** A part of a line, with the mark of its job on its own dashes only. */
function Line({ d, mark, num = 1, at = 0 }: LineProps) {
  const dashes = num > 1 ? { strokeDasharray: `${DASH} ${DASH * (num - 1)}`, strokeDashoffset: -DASH * at } : undefined;
  const dots = num > 1 ? { strokeDasharray: `${DOT} ${DASH * num - DOT}`, strokeDashoffset: -DASH * (at + 0.4) } : DOTS;
  return (
    <>
      <path d={d} className="timeline-line" {...dashes} />
      {mark && <path d={d} className="timeline-core" {...(mark === 1 ? dots : dashes)} />}
    </>
  );
}

/** Return stretches that are dashed alike, as one each. */
function groupShared(spans: readonly SharedSpan[]): { num: number; at: number; spans: SharedSpan[] }[] {
  const groups = new Map<string, { num: number; at: number; spans: SharedSpan[] }>();
  for (const span of spans) {
    const key = `${span.num} ${span.place}`;
    const group = groups.get(key) ?? { num: span.num, at: span.place, spans: [] };
    group.spans.push(span);
    groups.set(key, group);
  }
  return [...groups.values()];
}

/** Return the vertical parts of a step line. */
function drawRises(line: Steps, since: number, until: number, x: Scale, y: Scale): string {
  const { times, values } = cutSteps(line, since, until);
  return times
    .slice(1)
    .map((time, place) => `M${x(time)} ${y(values[place] ?? 0)}V${y(values[place + 1] ?? 0)}`)
    .join("");
}

function Layers({ timeline, since, until, lit, frame, y }: Inner & { y: Scale }) {
  const layers = stackSteps(timeline.items.map(stepsOf), since, until);
  return (
    <>
      {layers.map((layer, place) => {
        const item = timeline.items[place] as TimelineItem;
        return (
          <g key={item.key} opacity={dimOf(item.key, lit)}>
            <path
              d={drawLayer(layer, until, frame.x, y)}
              className="timeline-layer"
              style={{ fill: jobColour(item.key) } as CSSProperties}
            />
            {jobMark(item.key) && (
              <path d={drawLayer(layer, until, frame.x, y)} fill={`url(#mark-${jobMark(item.key)})`} />
            )}
          </g>
        );
      })}
    </>
  );
}

function Bars({ timeline, since, until, lit, frame }: Inner) {
  const most = Math.max(1, ...timeline.items.flatMap((item) => item.slots));
  return (
    <>
      {timeline.items.map((item, row) => {
        const top = TOP + row * ROW_HEIGHT;
        return (
          <g key={item.key} opacity={dimOf(item.key, lit)}>
            <line x1={0} x2={frame.right} y1={top + ROW_HEIGHT} y2={top + ROW_HEIGHT} stroke="var(--line)" />
            {frame.letters > 0 && (
              <text x={4} y={top + 17} className="timeline-name" fill="var(--text)">
                <title>{item.title}</title>
                {cutName(item.title, frame.letters)}
              </text>
            )}
            {findSpans(stepsOf(item), since, until).map((span) => {
              const [from, to] = [frame.x(span.from), frame.x(span.to)];
              const height = 6 + (ROW_HEIGHT - 14) * (span.value / most);
              const mark = jobMark(item.key);
              const place = {
                ...{ x: from, width: Math.max(1, to - from - 0.5), rx: 2 },
                ...{ y: top + (ROW_HEIGHT - height) / 2, height },
              };
              return (
                <g key={span.from}>
                  <title>{`${item.title}: ${countOf(span.value, "slot")}`}</title>
                  <rect {...place} fill={jobColour(item.key)} />
                  {mark && <rect {...place} fill={`url(#mark-${mark})`} />}
                  {to - from > 18 && (
                    <text
                      x={(from + to) / 2}
                      y={top + 17}
                      textAnchor="middle"
                      className="timeline-number"
                      style={{ stroke: jobColour(item.key) }}
                    >
                      {span.value}
                    </text>
                  )}
                </g>
              );
            })}
          </g>
        );
      })}
    </>
  );
}
