/** Lines of logs: only those that can be seen are drawn, so 100,000 are as quick as ten. */

import { type RefObject, useEffect, useImperativeHandle, useLayoutEffect, useMemo, useRef } from "react";
import { useWindow } from "@/parts/windowing";
import { afterReturn, type Piece, readAnsi } from "./ansi";
import { findPlace, type LogBook } from "./log-book";

const LINE_HEIGHT = 20;
/** What is longer is cut where it is drawn; the file has all of it. */
const MAX_DRAWN = 5000;

export interface LogListHandle {
  /** Bring the line with this number, or the next one that is shown, into the middle. */
  show: (number: number) => void;
}

interface LogListProps {
  book: LogBook;
  /** Numbers of the lines that are shown. */
  numbers: readonly number[];
  /** Marked in the lines. */
  text: string;
  /** The number of the line that is pointed out. */
  pointed: number | null;
  isFollowing: boolean;
  onFollow: (isFollowing: boolean) => void;
  handle: RefObject<LogListHandle | null>;
  hasNames: boolean;
}

/** The list. It follows the end until the user scrolls up. */
export function LogList(props: LogListProps) {
  const { book, numbers, text, pointed, isFollowing, onFollow, handle, hasNames } = props;
  const box = useRef<HTMLDivElement>(null);
  const view = useWindow(box, numbers.length, LINE_HEIGHT);
  useImperativeHandle(handle, () => ({
    show: (number) => {
      const place = findPlace(numbers, number);
      if (box.current) box.current.scrollTop = place * LINE_HEIGHT - box.current.clientHeight / 2;
    },
  }));
  // biome-ignore lint/correctness/useExhaustiveDependencies: it goes to the end when there is more
  useLayoutEffect(() => {
    if (isFollowing && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [isFollowing, numbers]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    let before = element.scrollTop;
    const look = () => {
      const isUp = element.scrollTop < before - 2;
      const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - LINE_HEIGHT;
      before = element.scrollTop;
      if (isUp && !isAtEnd) onFollow(false);
    };
    element.addEventListener("scroll", look, { passive: true });
    return () => element.removeEventListener("scroll", look);
  }, [onFollow]);
  const shown = useMemo(() => numbers.slice(view.first, view.end), [numbers, view.first, view.end]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse scrolls it by keys
    <div className="log-list" ref={box} role="log" aria-label="Log lines" aria-live="off" tabIndex={0}>
      <div style={{ height: view.above }} />
      {shown.map((number) => {
        const line = book.at(number);
        if (!line) return null;
        return (
          <div key={number} className={number === pointed ? "log-line log-line-pointed" : "log-line"}>
            {hasNames && <span className="log-name">{shortName(line.log)}</span>}
            <LogText line={line.text} text={text} />
          </div>
        );
      })}
      <div style={{ height: view.below }} />
    </div>
  );
}

function shortName(log: string): string {
  return log === "driver" ? "drv" : log.replace("worker-", "w");
}

function LogText({ line, text }: { line: string; text: string }) {
  const pieces = useMemo(() => mark(readAnsi(line, MAX_DRAWN), text), [line, text]);
  const isCut = useMemo(() => line.length > MAX_DRAWN && afterReturn(line).length > MAX_DRAWN, [line]);
  return (
    <bdi className="log-text">
      {pieces.map((piece, place) =>
        piece.isMarked ? (
          <mark key={place} className={piece.look}>
            {piece.text}
          </mark>
        ) : piece.look ? (
          <span key={place} className={piece.look}>
            {piece.text}
          </span>
        ) : (
          piece.text
        ),
      )}
      {isCut && <span className="quiet"> … line truncated; download the log to see all of it</span>}
    </bdi>
  );
}

interface Marked extends Piece {
  isMarked: boolean;
}

/** Return pieces in which what was searched for stands apart, also where it reaches over two colours. */
export function mark(pieces: readonly Piece[], text: string): Marked[] {
  if (!text) return pieces.map((piece) => ({ ...piece, isMarked: false }));
  const whole = pieces
    .map((piece) => piece.text)
    .join("")
    .toLowerCase();
  const cuts: [number, number][] = [];
  for (let at = whole.indexOf(text); at >= 0; at = whole.indexOf(text, at + text.length))
    cuts.push([at, at + text.length]);
  const marked: Marked[] = [];
  let begin = 0;
  for (const piece of pieces) {
    const end = begin + piece.text.length;
    let from = begin;
    const add = (until: number, isMarked: boolean) => {
      if (until > from)
        marked.push({ text: piece.text.slice(from - begin, until - begin), look: piece.look, isMarked });
      from = Math.max(from, until);
    };
    for (const [left, right] of cuts) {
      if (right <= begin || left >= end) continue;
      add(Math.max(left, begin), false);
      add(Math.min(right, end), true);
    }
    add(end, false);
    begin = end;
  }
  return marked;
}
