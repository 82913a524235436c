/**
 * Long lists: only the rows that can be seen are drawn. All rows of a list have one height.
 * No library: with one height this is a division, while libraries measure each row and do not keep rows in place by keys.
 */

import { type RefObject, useLayoutEffect, useRef, useState } from "react";

/** Rows drawn above and below those that can be seen, so that scrolling shows no holes. */
const MARGIN = 8;

export interface RowWindow {
  /** The first row that is drawn. */
  first: number;
  /** One behind the last row that is drawn. */
  end: number;
  /** Pixels that stand for the rows above and below. */
  above: number;
  below: number;
}

/** Return which rows are drawn, of a box that is scrolled so far. */
export function findWindow(numRows: number, rowHeight: number, scrolled: number, boxHeight: number): RowWindow {
  const first = Math.min(Math.max(0, Math.floor(scrolled / rowHeight) - MARGIN), Math.max(0, numRows - 1));
  const end = Math.min(numRows, Math.ceil((scrolled + boxHeight) / rowHeight) + MARGIN);
  const shownEnd = Math.max(first, end);
  return { first, end: shownEnd, above: first * rowHeight, below: (numRows - shownEnd) * rowHeight };
}

/** Return the window of a list whose box scrolls; `margin` is the height of what stands above the rows in the box. */
export function useWindow(box: RefObject<HTMLElement | null>, numRows: number, rowHeight: number): RowWindow {
  const [view, setView] = useState({ scrolled: 0, height: 800 });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => {
      // A step of one row is enough: fewer drawings while it scrolls.
      const scrolled = Math.floor(element.scrollTop / rowHeight) * rowHeight;
      const height = element.clientHeight || 800;
      setView((before) => (before.scrolled === scrolled && before.height === height ? before : { scrolled, height }));
    };
    look();
    element.addEventListener("scroll", look, { passive: true });
    const observer = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(look);
    observer?.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      observer?.disconnect();
    };
  }, [box, rowHeight]);
  return findWindow(numRows, rowHeight, view.scrolled, view.height);
}

/**
 * Keep the rows that are looked at where they are while rows come and go above them. At the top of the list nothing is
 * held: there new rows are to be seen.
 */
export function useAnchor(box: RefObject<HTMLElement | null>, keys: readonly string[], rowHeight: number): void {
  const before = useRef<readonly string[]>(keys);
  useLayoutEffect(() => {
    const element = box.current;
    const old = before.current;
    before.current = keys;
    if (!element || old === keys || element.scrollTop < rowHeight) return;
    const moved = findShift(old, keys, Math.floor(element.scrollTop / rowHeight));
    if (moved) element.scrollTop += moved * rowHeight;
  }, [box, keys, rowHeight]);
}

/** Return by how many rows the row at a place has moved; of a row that is gone, by how many the next one that is left has. */
export function findShift(old: readonly string[], keys: readonly string[], place: number): number {
  const places = new Map(keys.map((key, at) => [key, at]));
  for (let at = place; at < old.length; at += 1) {
    const found = places.get(old[at] as string);
    if (found !== undefined) return found - at;
  }
  return 0;
}

/** Return the width of an element in pixels, as it changes; 0 before it is there. */
export function useWidth(box: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => setWidth(element.clientWidth);
    look();
    if (typeof ResizeObserver === "undefined") return;
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => observer.disconnect();
  }, [box]);
  return width;
}
