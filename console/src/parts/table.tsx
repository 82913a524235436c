/** Tables: thousands of rows stay quick, rows that are looked at stay where they are, columns go where there is no room. */

import {
  type KeyboardEvent,
  type MouseEvent,
  memo,
  type ReactNode,
  type RefObject,
  useMemo,
  useRef,
  useState,
} from "react";
import { Icon } from "./icon";
import { useRowKeys } from "./row-keys";
import { useAnchor, useWidth, useWindow } from "./windowing";

export interface Column<R> {
  name: string;
  title: ReactNode;
  /** Pixels that it has at least. */
  width: number;
  /** Pixels that it gets before columns that leave are shown, other than those that leave last. */
  wants?: number;
  /** Its part of the room that is left; 0: none. */
  grows?: number;
  isEnd?: boolean;
  show: (row: R) => ReactNode;
  /** What it is sorted by; null goes last in any case. Without it the column does not sort. */
  sortBy?: (row: R) => number | string | null;
  /** Columns with a higher number go first where there is no room; without one it always stays. */
  leaves?: number;
}

export interface Sort {
  by: string;
  isUp: boolean;
}

interface TableProps<R> {
  /** What the table is of, for who hears the page. */
  label: string;
  rows: readonly R[];
  columns: readonly Column<R>[];
  keyOf: (row: R) => string;
  rowHeight?: number;
  /** Called when a row is pressed, beside its links and buttons, and at Enter on it. */
  onOpen?: (row: R) => void;
  chosen?: ReadonlySet<string>;
  onChoose?: (chosen: ReadonlySet<string>) => void;
  sort?: Sort | null;
  onSort?: (sort: Sort | null) => void;
  /** Shown in the place of rows, if there are none. */
  empty?: ReactNode;
  /** Shown behind the last row, such as how to see more. */
  foot?: ReactNode;
  /** Whether the table names the columns for which there is no room. */
  namesHidden?: boolean;
}

const CHOICE_WIDTH = 40;
const LEAVES_LAST = 1;

/** A table. */
export function Table<R>(props: TableProps<R>) {
  const { label, rows, keyOf, rowHeight = 44, onOpen, chosen, onChoose, empty, foot } = props;
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [ownSort, setOwnSort] = useState<Sort | null>(null);
  const sort = props.sort === undefined ? ownSort : props.sort;
  const setSort = props.onSort ?? setOwnSort;
  const choiceWidth = onChoose ? CHOICE_WIDTH : 0;
  const columns = useMemo(() => fitColumns(props.columns, width - choiceWidth), [props.columns, width, choiceWidth]);
  const sorted = useMemo(() => sortRows(rows, props.columns, sort), [rows, props.columns, sort]);
  const keys = useMemo(() => sorted.map(keyOf), [sorted, keyOf]);
  const view = useWindow(box, sorted.length, rowHeight);
  useAnchor(box, keys, rowHeight);
  const rowKeys = useRowKeys(box, keys, rowHeight, view);

  const numColumns = columns.length + (onChoose ? 1 : 0);
  const grows = columns.reduce((sum, column) => sum + (column.grows ?? 0), 0);
  const isRoomy = columns.reduce((sum, column) => sum + wantedWidth(column), choiceWidth) <= width;
  const widthOf = (column: Column<R>) => (isRoomy ? wantedWidth(column) : column.width);
  const fixed = columns.reduce((sum, column) => sum + widthOf(column), choiceWidth);
  const left = Math.max(0, width - fixed);
  const choose = (key: string, isOn: boolean) => {
    const next = new Set(chosen);
    if (isOn) next.add(key);
    else next.delete(key);
    onChoose?.(next);
  };
  const open = (event: MouseEvent, row: R) => {
    if ((event.target as Element).closest("a, button, input, select, label, [role=menu]")) return;
    if (window.getSelection()?.toString()) return;
    onOpen?.(row);
  };
  // Rows are redrawn only when they change themselves; what they do is looked up when it is done.
  const press = (event: KeyboardEvent, key: string, row: R) => {
    // What stands in a row has keys of its own.
    if (event.target !== event.currentTarget) return;
    if (event.key === "Enter" && onOpen) onOpen(row);
    else if (event.key === " " && onChoose) {
      event.preventDefault();
      choose(key, !chosen?.has(key));
    } else rowKeys.move(event, key);
  };
  const [headStop, setHeadStop] = useState<string | null>(null);
  const sortable = columns.filter((column) => column.sortBy);
  const stop = sortable.find((column) => column.name === headStop) ?? sortable[0];
  const acts = useRef({ open, choose, press, focus: rowKeys.onFocus });
  acts.current = { open, choose, press, focus: rowKeys.onFocus };
  const isAll = sorted.length > 0 && keys.every((key) => chosen?.has(key));
  const hidden = props.namesHidden ? props.columns.filter((column) => !columns.includes(column)) : [];

  return (
    <div className="table-box" ref={box}>
      <table
        className="table"
        aria-label={label}
        aria-rowcount={sorted.length + 1}
        style={{ minWidth: fixed, ["--row-height" as string]: `${rowHeight}px` }}
      >
        <colgroup>
          {onChoose && <col style={{ width: CHOICE_WIDTH }} />}
          {columns.map((column) => (
            <col
              key={column.name}
              style={{
                width: widthOf(column) + (grows ? (left * (column.grows ?? 0)) / grows : left / columns.length),
              }}
            />
          ))}
        </colgroup>
        <thead>
          <tr onKeyDown={moveInHead}>
            {onChoose && (
              <th className="table-choice">
                <input
                  type="checkbox"
                  aria-label="Select all"
                  checked={isAll}
                  ref={(input) => {
                    if (input) input.indeterminate = !isAll && keys.some((key) => chosen?.has(key));
                  }}
                  onChange={(event) => onChoose(event.currentTarget.checked ? new Set(keys) : new Set())}
                />
              </th>
            )}
            {columns.map((column) => (
              <Heading
                key={column.name}
                column={column}
                sort={sort ?? null}
                onSort={setSort}
                isStop={column === stop}
                onFocus={() => setHeadStop(column.name)}
              />
            ))}
          </tr>
        </thead>
        <tbody>
          {view.above > 0 && <Room height={view.above} numColumns={numColumns} />}
          {sorted.slice(view.first, view.end).map((row, place) => {
            const key = keys[view.first + place] as string;
            const isChosen = chosen?.has(key) ?? false;
            return (
              <Row
                key={key}
                row={row}
                rowKey={key}
                place={view.first + place}
                columns={columns}
                isChosen={onChoose ? isChosen : null}
                canOpen={onOpen !== undefined}
                isStop={key === rowKeys.stop}
                acts={acts}
              />
            );
          })}
          {view.below > 0 && <Room height={view.below} numColumns={numColumns} />}
        </tbody>
      </table>
      {sorted.length === 0 && empty}
      {foot}
      {hidden.length > 0 && (
        <p className="table-hidden small quiet">
          No room for the columns {hidden.map((column) => column.title).join(", ")}: widen the window, or show fewer.
        </p>
      )}
    </div>
  );
}

interface Acts<R> {
  open: (event: MouseEvent, row: R) => void;
  choose: (key: string, isOn: boolean) => void;
  press: (event: KeyboardEvent, key: string, row: R) => void;
  focus: (key: string) => void;
}

interface RowProps<R> {
  row: R;
  rowKey: string;
  place: number;
  columns: readonly Column<R>[];
  /** Null: rows are not chosen in this table. */
  isChosen: boolean | null;
  canOpen: boolean;
  /** The tabulator stops at this row; from there keys go on. */
  isStop: boolean;
  acts: RefObject<Acts<R>>;
}

function DrawnRow<R>({ row, rowKey, place, columns, isChosen, canOpen, isStop, acts }: RowProps<R>) {
  return (
    <tr
      aria-rowindex={place + 2}
      {...(isChosen === null ? {} : { "aria-selected": isChosen })}
      className={canOpen ? "table-goes" : undefined}
      data-key={rowKey}
      tabIndex={isStop ? 0 : -1}
      onFocus={() => acts.current.focus(rowKey)}
      onKeyDown={(event) => acts.current.press(event, rowKey, row)}
      onClick={(event) => acts.current.open(event, row)}
    >
      {isChosen !== null && (
        <td className="table-choice">
          <input
            type="checkbox"
            aria-label={`Select ${rowKey}`}
            checked={isChosen}
            onChange={(event) => acts.current.choose(rowKey, event.currentTarget.checked)}
          />
        </td>
      )}
      {columns.map((column) => (
        <td key={column.name} className={column.isEnd ? "at-end" : undefined}>
          {column.show(row)}
        </td>
      ))}
    </tr>
  );
}

const Row = memo(DrawnRow) as typeof DrawnRow;

function Room({ height, numColumns }: { height: number; numColumns: number }) {
  return (
    <tr className="room">
      <td colSpan={numColumns} style={{ height }} />
    </tr>
  );
}

interface HeadingProps<R> {
  column: Column<R>;
  sort: Sort | null;
  onSort: (sort: Sort | null) => void;
  /** The tabulator stops at this head; arrows go on to the others. */
  isStop: boolean;
  onFocus: () => void;
}

/** Move between the heads of columns that sort. */
function moveInHead(event: KeyboardEvent<HTMLElement>): void {
  const heads = [...event.currentTarget.querySelectorAll<HTMLElement>(".table-sort")];
  const at = heads.indexOf(event.target as HTMLElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: heads.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  heads[Math.min(Math.max(to, 0), heads.length - 1)]?.focus();
}

function Heading<R>({ column, sort, onSort, isStop, onFocus }: HeadingProps<R>) {
  const isSorted = sort?.by === column.name;
  // Up, then down, then as it was.
  const next = !isSorted ? { by: column.name, isUp: true } : sort.isUp ? { by: column.name, isUp: false } : null;
  return (
    <th
      scope="col"
      className={column.isEnd ? "at-end" : undefined}
      {...(isSorted ? { "aria-sort": sort.isUp ? "ascending" : "descending" } : {})}
    >
      {column.sortBy ? (
        <button
          type="button"
          className="table-sort"
          tabIndex={isStop ? 0 : -1}
          onFocus={onFocus}
          onClick={() => onSort(next)}
        >
          {column.title}
          {isSorted && <Icon name={sort.isUp ? "arrowUp" : "arrowDown"} size={11} />}
        </button>
      ) : (
        column.title
      )}
    </th>
  );
}

/** Return the columns for which there is room; 0: the room is not known yet. */
export function fitColumns<R>(columns: readonly Column<R>[], width: number): readonly Column<R>[] {
  if (width <= 0) return columns;
  const kept = [...columns];
  const leaving = columns.filter((column) => column.leaves !== undefined);
  leaving.sort((one, other) => (other.leaves ?? 0) - (one.leaves ?? 0));
  for (const column of leaving) {
    const measure = column.leaves === LEAVES_LAST ? (one: Column<R>) => one.width : wantedWidth;
    if (kept.reduce((sum, one) => sum + measure(one), 0) <= width) break;
    kept.splice(kept.indexOf(column), 1);
  }
  return kept;
}

function wantedWidth<R>(column: Column<R>): number {
  return column.wants ?? column.width;
}

/** Return the rows in order; rows that are equal stay as they were given. */
export function sortRows<R>(rows: readonly R[], columns: readonly Column<R>[], sort: Sort | null): readonly R[] {
  const sortBy = columns.find((column) => column.name === sort?.by)?.sortBy;
  if (!sort || !sortBy) return rows;
  const sign = sort.isUp ? 1 : -1;
  return rows.toSorted((one, other) => {
    const [first, second] = [sortBy(one), sortBy(other)];
    if (first === null || second === null) return first === second ? 0 : first === null ? 1 : -1;
    if (typeof first === "string" && typeof second === "string") {
      return sign * first.localeCompare(second, "en", { numeric: true, sensitivity: "base" });
    }
    return sign * (Number(first) - Number(second));
  });
}
