/** The differences of two texts, line by line, with some lines around each (Myers' algorithm). Pure. */

export interface DiffLine {
  kind: "same" | "gone" | "new";
  text: string;
}

/** Neighbouring differences with the lines around them. Numbers of lines begin with 1. */
export interface Hunk {
  before: number;
  after: number;
  lines: DiffLine[];
}

const NUM_AROUND = 3;
/** Texts with more differences than these are shown as replaced, because the search takes the square of them. */
const MAX_EDITS = 1500;

/** What the differences of several texts may cost; each comparison takes its part. */
export interface Effort {
  steps: number;
}

/** Return the lines of a text; a newline at its end begins no other line. */
export function splitLines(text: string): string[] {
  const lines = text.split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Return where two texts differ; empty: nowhere. It takes its steps from `effort`, which may become negative. */
export function diffLines(before: readonly string[], after: readonly string[], effort?: Effort): Hunk[] {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  const most = Math.min(before.length, after.length) - head;
  while (tail < most && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  const [old, now] = [before.slice(head, before.length - tail), after.slice(head, after.length - tail)];
  const middle = compareMiddle(old, now, effort ?? { steps: 0 });
  const same = (lines: readonly string[]) => lines.map((text): DiffLine => ({ kind: "same", text }));
  return cutHunks([...same(before.slice(0, head)), ...middle, ...same(before.slice(before.length - tail))]);
}

function compareMiddle(before: readonly string[], after: readonly string[], effort: Effort): DiffLine[] {
  const replaced = [
    ...before.map((text): DiffLine => ({ kind: "gone", text })),
    ...after.map((text): DiffLine => ({ kind: "new", text })),
  ];
  if (!before.length || !after.length) return replaced;
  // Numbers are compared faster than lines.
  const numbers = new Map<string, number>();
  const number = (line: string) => {
    const known = numbers.get(line) ?? numbers.size;
    numbers.set(line, known);
    return known;
  };
  const trace = findTrace(Int32Array.from(before, number), Int32Array.from(after, number));
  const num = trace?.length ?? MAX_EDITS;
  effort.steps -= (num * num) / 2;
  return trace ? walkBack(trace, before, after) : replaced;
}

/**
 * Return for each number of edits how far each diagonal was reached before it; null: there are too many edits.
 * The place of diagonal d in the row of e edits is e + 1 + d.
 */
function findTrace(before: Int32Array, after: Int32Array): Int32Array[] | null {
  const max = Math.min(before.length + after.length, MAX_EDITS);
  const middle = max + 1;
  const reached = new Int32Array(2 * middle + 1).fill(-1);
  reached[middle + 1] = 0;
  const trace: Int32Array[] = [];
  for (let edits = 0; edits <= max; edits += 1) {
    const row = reached.slice(middle - edits - 1, middle + edits + 2);
    trace.push(row);
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = startOf(row, diagonal, edits);
      let y = x - diagonal;
      while (x < before.length && y < after.length && before[x] === after[y]) {
        x += 1;
        y += 1;
      }
      reached[middle + diagonal] = x;
      if (x >= before.length && y >= after.length) return trace;
    }
  }
  return null;
}

function startOf(row: Int32Array, diagonal: number, edits: number): number {
  const below = reachedIn(row, diagonal + 1, edits);
  const left = reachedIn(row, diagonal - 1, edits);
  return diagonal === -edits || (diagonal !== edits && left < below) ? below : left + 1;
}

function reachedIn(row: Int32Array, diagonal: number, edits: number): number {
  return row[edits + 1 + diagonal] ?? -1;
}

function walkBack(trace: readonly Int32Array[], before: readonly string[], after: readonly string[]): DiffLine[] {
  const lines: DiffLine[] = [];
  let [x, y] = [before.length, after.length];
  for (let edits = trace.length - 1; edits >= 0; edits -= 1) {
    const row = trace[edits] as Int32Array;
    const diagonal = x - y;
    const start = startOf(row, diagonal, edits);
    const isNew = edits > 0 && start === reachedIn(row, diagonal + 1, edits);
    while (x > Math.max(start, 0) && y > Math.max(start - diagonal, 0)) {
      x -= 1;
      y -= 1;
      lines.push({ kind: "same", text: before[x] as string });
    }
    if (edits === 0) break;
    if (isNew) {
      y -= 1;
      lines.push({ kind: "new", text: after[y] as string });
    } else {
      x -= 1;
      lines.push({ kind: "gone", text: before[x] as string });
    }
  }
  return lines.reverse();
}

function cutHunks(lines: readonly DiffLine[]): Hunk[] {
  const hunks: Hunk[] = [];
  let hunk: Hunk | null = null;
  let [before, after, numSame] = [1, 1, 0];
  lines.forEach((line, place) => {
    if (line.kind === "same") {
      numSame += 1;
      if (hunk && numSame <= NUM_AROUND) hunk.lines.push(line);
    } else {
      const numMissed = numSame - NUM_AROUND;
      // Between two differences that are near each other, all lines are shown.
      if (!hunk || numMissed > NUM_AROUND) {
        const num = Math.min(numSame, NUM_AROUND);
        hunk = { before: before - num, after: after - num, lines: lines.slice(place - num, place) };
        hunks.push(hunk);
      } else if (numMissed > 0) hunk.lines.push(...lines.slice(place - numMissed, place));
      hunk.lines.push(line);
      numSame = 0;
    }
    if (line.kind !== "new") before += 1;
    if (line.kind !== "gone") after += 1;
  });
  return hunks;
}
