/** All lines of logs that the page knows, in the order in which they came. Of each line: its log, and where in it it begins. */

import { findLevel, type Level, stripAnsi } from "./ansi";

/** Beyond so many the oldest lines go. */
export const MAX_LINES = 200_000;

export interface LogLine {
  log: string;
  text: string;
  /** Bytes from the beginning of its log; null: nobody knows, because the log was not read from its beginning. */
  offset: number | null;
}

interface Open {
  /** The line that is not ended yet. */
  text: string;
  place: number | null;
  offset: number | null;
}

const LEVEL_RANK: Record<Level, number> = { debug: 0, info: 1, warning: 2, error: 3 };

/** Lines come in, whole or in parts; a part that goes on belongs to the same line. */
export class LogBook {
  lines: LogLine[] = [];
  /** Lines that went because there were too many. */
  numGone = 0;
  private open = new Map<string, Open>();
  private readonly begins: boolean;

  /** `isFromStart`: logs are read from their beginnings. */
  constructor(isFromStart = true) {
    this.begins = isFromStart;
  }

  /** Take what a log says next. */
  add(log: string, text: string): void {
    const parts = text.split("\n");
    const open = this.open.get(log) ?? { text: "", place: null, offset: this.begins ? 0 : null };
    this.open.set(log, open);
    for (const [place, part] of parts.entries()) {
      if (part) this.extend(log, open, part);
      if (place === parts.length - 1) break;
      if (open.place === null) this.push(log, open, "");
      open.offset = open.offset === null ? null : open.offset + countBytes(open.text) + 1;
      open.text = "";
      open.place = null;
    }
    this.drop();
  }

  private extend(log: string, open: Open, part: string): void {
    open.text += part;
    if (open.place === null) this.push(log, open, open.text);
    else this.lines[open.place - this.numGone] = { log, text: open.text, offset: open.offset };
  }

  private push(log: string, open: Open, text: string): void {
    open.place = this.lines.length + this.numGone;
    this.lines.push({ log, text, offset: open.offset });
  }

  private drop(): void {
    // Not one by one: taking from the front of a list costs as much as the list is long.
    if (this.lines.length < MAX_LINES * 1.1) return;
    const num = this.lines.length - MAX_LINES;
    this.lines = this.lines.slice(num);
    this.numGone += num;
    for (const open of this.open.values()) if (open.place !== null && open.place < this.numGone) open.place = null;
  }

  /** Return the place of the line of a log that holds this byte, or the last one before it; -1: none is known. */
  find(log: string, offset: number): number {
    let found = -1;
    for (const [place, line] of this.lines.entries()) {
      if (line.log !== log || line.offset === null) continue;
      if (line.offset > offset) break;
      found = place;
    }
    return found;
  }
}

export interface LogFilter {
  logs: ReadonlySet<string> | null;
  level: Level;
  text: string;
  /** Only lines with the text; else they are only marked. */
  isOnlyText: boolean;
}

/** Return the places of the lines that fit. */
export function filterLines(lines: readonly LogLine[], filter: LogFilter): number[] {
  const text = filter.text.toLowerCase();
  const rank = LEVEL_RANK[filter.level];
  const places: number[] = [];
  for (const [place, line] of lines.entries()) {
    if (filter.logs && !filter.logs.has(line.log)) continue;
    if (rank > 0 && LEVEL_RANK[findLevel(stripAnsi(line.text))] < rank) continue;
    if (filter.isOnlyText && text && !hasText(line, text)) continue;
    places.push(place);
  }
  return places;
}

/** Return whether a line has this text, which is given in small letters. */
export function hasText(line: LogLine, text: string): boolean {
  return stripAnsi(line.text).toLowerCase().includes(text);
}

/** Return how many bytes a text is in UTF-8. */
export function countBytes(text: string): number {
  let num = text.length;
  for (let place = 0; place < text.length; place += 1) {
    const code = text.charCodeAt(place);
    if (code < 0x80) continue;
    // Half of a sign beyond the first 65,536: both halves are four bytes.
    num += code < 0x800 || (code >= 0xd800 && code <= 0xdfff) ? 1 : 2;
  }
  return num;
}
