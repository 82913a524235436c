/** Keys in tables and other lists of rows: from row to row, by page, to both ends. Pure but for the hook. */

import { type KeyboardEvent, type RefObject, useLayoutEffect, useRef, useState } from "react";

/** Return the row to which a key leads, or null if it leads to none. `perPage`: rows that can be seen at once. */
export function findRow(key: string, place: number, numRows: number, perPage: number): number | null {
  const last = numRows - 1;
  const to = {
    ArrowDown: place + 1,
    ArrowUp: place - 1,
    PageDown: place + Math.max(1, perPage - 1),
    PageUp: place - Math.max(1, perPage - 1),
    Home: 0,
    End: last,
  }[key];
  return to === undefined || numRows === 0 ? null : Math.min(last, Math.max(0, to));
}

/** Return how far a box is to be scrolled for a row to be seen whole, below a head that stays. */
export function findScroll(
  place: number,
  rowHeight: number,
  scrolled: number,
  boxHeight: number,
  head: number,
): number {
  const top = place * rowHeight;
  const most = top + rowHeight + head - boxHeight;
  return top < scrolled ? top : Math.max(scrolled, most);
}

interface RowKeys {
  /** The key of the one row that the tabulator reaches. */
  stop: string | undefined;
  onFocus: (key: string) => void;
  /** Called with keys pressed on a row itself; returns whether they led anywhere. */
  move: (event: KeyboardEvent, key: string) => void;
}

/** Return how keys move in the rows of a box that draws only some of them: `first` to before `end`. */
export function useRowKeys(
  box: RefObject<HTMLElement | null>,
  keys: readonly string[],
  rowHeight: number,
  drawn: { first: number; end: number },
): RowKeys {
  const [current, setCurrent] = useState<string | null>(null);
  const wanted = useRef<string | null>(null);
  // A row far away is drawn only after the box was scrolled to it: whenever something is drawn it may be there.
  useLayoutEffect(() => {
    if (wanted.current === null) return;
    const row = [...(box.current?.querySelectorAll<HTMLElement>("tr[data-key]") ?? [])].find(
      (one) => one.dataset.key === wanted.current,
    );
    if (!row) return;
    wanted.current = null;
    row.focus({ preventScroll: isScrolled(box.current) });
  });
  const place = current === null ? -1 : keys.indexOf(current);
  const isDrawn = place >= drawn.first && place < drawn.end;
  return {
    stop: keys[isDrawn ? place : drawn.first],
    onFocus: setCurrent,
    move: (event, key) => {
      const element = box.current;
      if (!element || event.ctrlKey || event.metaKey || event.altKey) return;
      const perPage = isScrolled(element) ? Math.floor(element.clientHeight / rowHeight) : PAGE_ROWS;
      const to = findRow(event.key, keys.indexOf(key), keys.length, perPage);
      if (to === null) return;
      event.preventDefault();
      const head = element.querySelector("thead")?.clientHeight ?? 0;
      element.scrollTop = findScroll(to, rowHeight, element.scrollTop, element.clientHeight, head);
      wanted.current = keys[to] as string;
      setCurrent(wanted.current);
    },
  };
}

const PAGE_ROWS = 10;

function isScrolled(box: HTMLElement | null): boolean {
  return box !== null && box.scrollHeight > box.clientHeight;
}
