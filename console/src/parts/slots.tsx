/** Small pictures of slots: how many a job has of what it may have, and how that was over time. */

import { formatShare } from "@/format/numbers";

interface SlotBarProps {
  num: number;
  min: number;
  max: number;
  colour?: string;
}

/** So many squares are drawn; of more the bar is one piece. */
const MAX_SQUARES = 16;

/** Slots now, out of at most so many: full squares are held, those up to the least are marked. */
export function SlotBar({ num, min, max, colour = "var(--accent)" }: SlotBarProps) {
  const most = Math.max(max, num, 1);
  const label = `${num} of ${min === max ? max : `${min} to ${max}`} slots`;
  if (most > MAX_SQUARES) {
    return (
      <svg width={82} height={10} role="img" aria-label={label}>
        <rect x={0.5} y={0.5} width={81} height={9} rx={2.5} fill="none" stroke="var(--line-strong)" />
        <rect width={(82 * num) / most} height={10} rx={2.5} fill={colour} />
        <rect x={(82 * min) / most} width={1} height={10} fill="var(--text-3)" />
      </svg>
    );
  }
  return (
    <svg width={most * 11} height={10} role="img" aria-label={label}>
      {Array.from({ length: most }, (_, place) =>
        place < num ? (
          <rect key={place} x={place * 11} width={9} height={10} rx={2.5} fill={colour} />
        ) : (
          <rect
            key={place}
            x={place * 11 + 0.5}
            y={0.5}
            width={8}
            height={9}
            rx={2}
            fill="none"
            stroke={place < min ? "var(--text-3)" : "var(--line-strong)"}
          />
        ),
      )}
    </svg>
  );
}

export interface StepLine {
  /** Seconds since 1970, ascending. */
  times: readonly number[];
  /** From each time on. */
  values: readonly number[];
}

interface SparkProps {
  line: StepLine;
  since: number;
  until: number;
  max: number;
  colour?: string;
  width?: number;
  height?: number;
}

/** A step line over time, with its ground filled. */
export function StepSpark({ line, since, until, max, colour = "var(--accent)", width = 90, height = 22 }: SparkProps) {
  const path = makeStepPath(line, since, until, Math.max(1, max), width, height - 2);
  return (
    <svg width={width} height={height} aria-hidden="true">
      <line x1={0} x2={width} y1={height - 0.5} y2={height - 0.5} stroke="var(--line)" />
      {path && (
        <g transform="translate(0 1)">
          <path d={`${path.line}V${height - 2}H${path.from}Z`} fill={colour} fillOpacity={0.18} />
          <path d={path.line} fill="none" stroke={colour} strokeWidth={1.5} />
        </g>
      )}
    </svg>
  );
}

/** Return a step line as SVG, and where it begins; null if nothing of it lies in the time. It ends where it is 0 for good. */
export function makeStepPath(
  { times, values }: StepLine,
  since: number,
  until: number,
  max: number,
  width: number,
  height: number,
): { line: string; from: number } | null {
  const x = (time: number) => round(((Math.min(Math.max(time, since), until) - since) / (until - since)) * width);
  const y = (value: number) => round(height - (Math.min(value, max) / max) * height);
  let line = "";
  let from = 0;
  for (const [place, time] of times.entries()) {
    const isPast = (times[place + 1] ?? until) <= since;
    if (isPast || time >= until) continue;
    const value = values[place] ?? 0;
    if (place === times.length - 1 && value === 0) return line ? { line: `${line}H${x(time)}`, from } : null;
    if (!line) {
      from = x(time);
      line = `M${from} ${y(value)}`;
    } else line += `H${x(time)}V${y(value)}`;
  }
  return line ? { line: `${line}H${x(until)}`, from } : null;
}

function round(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}

/** How far something is, 0 to 1; null: not known. */
export function Meter({ share, label, colour }: { share: number | null; label: string; colour?: string }) {
  return (
    <div
      className="meter"
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round((share ?? 0) * 100)}
      aria-valuetext={formatShare(share)}
    >
      <div
        className="meter-fill"
        style={{ width: `${100 * Math.min(1, share ?? 0)}%`, ...(colour ? { background: colour } : {}) }}
      />
    </div>
  );
}
