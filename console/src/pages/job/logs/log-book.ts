/**
 * All lines of logs that the page knows, in the order in which they came, by numbers that never change. Of each line:
 * its log, and where in it it begins.
 */

import { findLevel, type Level, stripAnsi } from "./ansi";

/** Beyond so many the oldest lines go. */
export const MAX_LINES = 200_000;
/** What a line has beyond so many characters is left out here; the file has all of it. */
export const MAX_LINE_CHARS = 50_000;

export interface LogLine {
  log: string;
  text: string;
  /** Bytes from the beginning of its log; null: unknown, because the log was not read from its beginning. */
  offset: number | null;
}

interface Open {
  /** The line that is not ended yet, without what it has written over itself. */
  text: string;
  /** Of all that the line has said. */
  numBytes: number;
  number: number | null;
  offset: number | null;
}

const LEVEL_RANK: Record<Level, number> = { debug: 0, info: 1, warning: 2, error: 3 };

/** Lines come in, whole or in parts; a part that goes on belongs to the same line. */
export class LogBook {
  lines: LogLine[] = [];
  /** Lines that went because there were too many; the number of the first one that is left. */
  numGone = 0;
  private open = new Map<string, Open>();
  private numbers = new Map<string, number[]>();
  private readonly begins: boolean;

  /** `isFromStart`: logs are read from their beginnings. */
  constructor(isFromStart = true) {
    this.begins = isFromStart;
  }

  /** The number that the next line gets. */
  get end(): number {
    return this.numGone + this.lines.length;
  }

  /** Return the line with a number; undefined: it is gone, or not there yet. */
  at(number: number): LogLine | undefined {
    return this.lines[number - this.numGone];
  }

  /** Return how many lines of these logs there are. */
  countLines(logs: ReadonlySet<string>): number {
    return [...logs].reduce((sum, log) => sum + (this.numbers.get(log)?.length ?? 0), 0);
  }

  /** Return the numbers of the lines that are not ended, and so may change. */
  listOpen(): number[] {
    return [...this.open.values()].flatMap(({ number }) => (number === null ? [] : [number]));
  }

  /** Take what a log says next. */
  add(log: string, text: string): void {
    const parts = text.split("\n");
    const open = this.open.get(log) ?? { text: "", numBytes: 0, number: null, offset: this.begins ? 0 : null };
    this.open.set(log, open);
    for (const [place, part] of parts.entries()) {
      if (part) this.extend(log, open, part);
      if (place === parts.length - 1) break;
      if (open.number === null) this.push(log, open);
      open.offset = open.offset === null ? null : open.offset + open.numBytes + 1;
      Object.assign(open, { text: "", numBytes: 0, number: null });
    }
    this.drop();
  }

  private extend(log: string, open: Open, part: string): void {
    open.text = dropWrittenOver(open.text + part).slice(0, MAX_LINE_CHARS);
    open.numBytes += countBytes(part);
    if (open.number === null) this.push(log, open);
    else this.lines[open.number - this.numGone] = { log, text: open.text, offset: open.offset };
  }

  private push(log: string, open: Open): void {
    open.number = this.end;
    this.lines.push({ log, text: open.text, offset: open.offset });
    const numbers = this.numbers.get(log);
    if (numbers) numbers.push(open.number);
    else this.numbers.set(log, [open.number]);
  }

  private drop(): void {
    // Not one by one: taking from the front of a list costs as much as the list is long.
    if (this.lines.length < MAX_LINES * 1.1) return;
    const num = this.lines.length - MAX_LINES;
    this.lines = this.lines.slice(num);
    this.numGone += num;
    for (const open of this.open.values()) if (open.number !== null && open.number < this.numGone) open.number = null;
    for (const [log, numbers] of this.numbers) this.numbers.set(log, numbers.slice(findPlace(numbers, this.numGone)));
  }

  /** Return the number of the line of a log that holds this byte, or of the last one before it; -1: none is known. */
  find(log: string, offset: number): number {
    const numbers = this.numbers.get(log) ?? [];
    const after = countWhile(numbers, (number) => {
      const begin = this.at(number)?.offset;
      return begin !== undefined && begin !== null && begin <= offset;
    });
    return numbers[after - 1] ?? -1;
  }
}

/** Return a line without what it has written over itself, as a progress bar does, but for the sign that it may do so again. */
function dropWrittenOver(text: string): string {
  if (!text.includes("\r")) return text;
  const end = text.replace(/\r+$/, "");
  const kept = end.slice(end.lastIndexOf("\r") + 1);
  return end.length < text.length ? `${kept}\r` : kept;
}

export interface LogFilter {
  logs: ReadonlySet<string> | null;
  level: Level;
  text: string;
  /** Only lines with the text; else they are only marked. */
  isOnlyText: boolean;
}

/** The lines of a book that fit a filter: each is looked at once, and those that are not ended again. */
export class FilteredLines {
  private numbers: number[] = [];
  private end = 0;
  private open: number[] = [];
  private readonly book: LogBook;
  private readonly filter: LogFilter;
  private readonly text: string;

  constructor(book: LogBook, filter: LogFilter) {
    this.book = book;
    this.filter = filter;
    this.text = filter.text.toLowerCase();
  }

  /** Return the numbers of the lines that fit by now; the same list if nothing changed. */
  read(): readonly number[] {
    const { book } = this;
    const begin = Math.max(this.end, book.numGone);
    const added: number[] = [];
    for (let number = begin; number < book.end; number += 1) if (this.fits(number)) added.push(number);
    const numGone = findPlace(this.numbers, book.numGone);
    const changed = this.open.filter((number) => number >= book.numGone && this.fits(number) !== this.has(number));
    if (added.length || numGone || changed.length) {
      const next = this.numbers.slice(numGone);
      for (const number of changed) {
        const place = findPlace(next, number);
        next.splice(place, next[place] === number ? 1 : 0, ...(next[place] === number ? [] : [number]));
      }
      for (const number of added) next.push(number);
      this.numbers = next;
    }
    this.end = book.end;
    this.open = book.listOpen();
    return this.numbers;
  }

  private has(number: number): boolean {
    return this.numbers[findPlace(this.numbers, number)] === number;
  }

  private fits(number: number): boolean {
    const line = this.book.at(number);
    const { logs, level, isOnlyText } = this.filter;
    if (!line || (logs && !logs.has(line.log))) return false;
    const rank = LEVEL_RANK[level];
    if (rank > 0 && LEVEL_RANK[findLevel(stripAnsi(line.text))] < rank) return false;
    return !isOnlyText || !this.text || hasText(line, this.text);
  }
}

/** Return how many of these are below a number: its place among them. They are in order. */
export function findPlace(numbers: readonly number[], number: number): number {
  return countWhile(numbers, (each) => each < number);
}

/** Return how many at the beginning of a list hold; of all that hold none comes behind one that does not. */
function countWhile(numbers: readonly number[], holds: (number: number) => boolean): number {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(numbers[middle] as number)) low = middle + 1;
    else high = middle;
  }
  return low;
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
