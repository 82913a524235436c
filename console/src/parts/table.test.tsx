// @vitest-environment jsdom
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { type Column, fitColumns, sortRows, Table } from "./table";
import { findShift, findWindow } from "./windowing";

interface Row {
  id: string;
  size: number | null;
}

const COLUMNS: Column<Row>[] = [
  { name: "id", title: "Name", width: 100, show: (row) => row.id, sortBy: (row) => row.id },
  { name: "size", title: "Size", width: 80, leaves: 1, show: (row) => row.size, sortBy: (row) => row.size },
  { name: "other", title: "Other", width: 80, leaves: 2, show: () => "" },
];
afterEach(cleanup);

const keyOf = (row: Row) => row.id;

describe("findWindow", () => {
  it("draws the visible rows and a few more", () => {
    const view = findWindow(100_000, 20, 1_000_000, 600);
    expect(view.first).toBe(50_000 - 8);
    expect(view.end).toBe(50_000 + 30 + 8);
    expect(view.above + (view.end - view.first) * 20 + view.below).toBe(100_000 * 20);
  });
  it("is never outside the list", () => {
    expect(findWindow(0, 20, 0, 600)).toEqual({ first: 0, end: 0, above: 0, below: 0 });
    expect(findWindow(3, 20, 9000, 600)).toMatchObject({ first: 2, end: 3, below: 0 });
  });
});

describe("findShift", () => {
  it("returns by how many rows a row moved", () => {
    expect(findShift(["a", "b", "c"], ["new", "a", "b", "c"], 1)).toBe(1);
    expect(findShift(["a", "b", "c"], ["b", "c"], 1)).toBe(-1);
  });
  it("uses the next remaining row if a row is gone", () => {
    expect(findShift(["a", "b", "c"], ["x", "y", "a", "c"], 1)).toBe(1);
    expect(findShift(["a"], ["x"], 0)).toBe(0);
  });
});

it("names the columns for which there is no room, if it is asked to", () => {
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(190);
  const table = (namesHidden: boolean) => (
    <Table label="Rows" rows={[]} columns={COLUMNS} keyOf={keyOf} namesHidden={namesHidden} />
  );
  const { rerender } = render(table(false));
  expect(screen.queryByText(/No room/)).toBeNull();
  rerender(table(true));
  screen.getByText("No room for the columns Other: widen the window, or show fewer.");
  vi.restoreAllMocks();
});

it("columns are hidden in the order of `leaves`", () => {
  expect(fitColumns(COLUMNS, 190).map((column) => column.name)).toEqual(["id", "size"]);
  expect(fitColumns(COLUMNS, 50).map((column) => column.name)).toEqual(["id"]);
  expect(fitColumns(COLUMNS, 0)).toHaveLength(3);
});

it("rows without a value are last in both sort directions", () => {
  const rows = [
    { id: "b10", size: 2 },
    { id: "b9", size: null },
    { id: "a", size: 1 },
  ];
  const order = (by: string, isUp: boolean) => sortRows(rows, COLUMNS, { by, isUp }).map(keyOf);
  expect(order("size", true)).toEqual(["a", "b10", "b9"]);
  expect(order("size", false)).toEqual(["b10", "a", "b9"]);
  expect(order("id", true)).toEqual(["a", "b9", "b10"]);
});

describe("Table", () => {
  const rows = Array.from({ length: 5000 }, (_, place) => ({ id: `job-${place}`, size: place }));
  it("draws few of many rows", () => {
    const { container } = render(<Table label="Jobs" rows={rows} columns={COLUMNS} keyOf={keyOf} />);
    expect(screen.getByLabelText("Jobs").getAttribute("aria-rowcount")).toBe("5001");
    expect(container.querySelectorAll("tr").length).toBeLessThan(60);
  });
  it("selects one row, or all", () => {
    const onChoose = vi.fn();
    render(
      <Table
        label="Jobs"
        rows={rows.slice(0, 3)}
        columns={COLUMNS}
        keyOf={keyOf}
        chosen={new Set(["job-1"])}
        onChoose={onChoose}
      />,
    );
    fireEvent.click(screen.getByLabelText("Select job-0"));
    expect(onChoose).toHaveBeenLastCalledWith(new Set(["job-1", "job-0"]));
    fireEvent.click(screen.getByLabelText("Select all"));
    expect(onChoose).toHaveBeenLastCalledWith(new Set(["job-0", "job-1", "job-2"]));
  });
  it("keys move by row, by page and to both ends; Enter opens, Space selects", async () => {
    const [onOpen, onChoose] = [vi.fn(), vi.fn()];
    render(
      <Table
        label="Jobs"
        rows={rows}
        columns={COLUMNS}
        keyOf={keyOf}
        rowHeight={40}
        onOpen={onOpen}
        chosen={new Set(["job-1"])}
        onChoose={onChoose}
      />,
    );
    const box = screen.getByLabelText("Jobs").parentElement as HTMLElement;
    Object.defineProperty(box, "clientHeight", { value: 400 });
    Object.defineProperty(box, "scrollHeight", { value: 200_000 });
    const press = (key: string) => fireEvent.keyDown(document.activeElement as Element, { key });
    const here = () => (document.activeElement as HTMLElement).dataset.key;
    const stops = () => [...box.querySelectorAll<HTMLElement>("tr[tabindex='0']")].map((row) => row.dataset.key);
    expect(stops()).toEqual(["job-0"]);
    box.querySelector<HTMLElement>("tr[tabindex='0']")?.focus();
    for (const [key, want] of [
      ["ArrowUp", "job-0"],
      ["ArrowDown", "job-1"],
      ["PageDown", "job-10"],
      ["PageUp", "job-1"],
    ]) {
      press(key as string);
      expect(here()).toBe(want);
    }
    expect(stops()).toEqual(["job-1"]);
    press("Enter");
    expect(onOpen.mock.calls.map(([row]) => row.id)).toEqual(["job-1"]);
    press(" ");
    expect(onChoose).toHaveBeenLastCalledWith(new Set());
    press("End");
    fireEvent.scroll(box);
    expect(here()).toBe("job-4999");
    expect(box.scrollTop).toBe(5000 * 40 - 400);
    press("Home");
    fireEvent.scroll(box);
    expect(here()).toBe("job-0");
    fireEvent.keyDown(screen.getByLabelText("Select job-0"), { key: "Enter" });
    expect(onOpen).toHaveBeenCalledOnce();
  });
});

it("the head is one stop of the tabulator; arrows move between its columns", () => {
  render(<Table label="Jobs" rows={[]} columns={COLUMNS} keyOf={keyOf} />);
  const [name, size] = screen.getAllByRole("button") as [HTMLElement, HTMLElement];
  const stops = () => [name, size].map((head) => head.tabIndex);
  expect(stops()).toEqual([0, -1]);
  name.focus();
  for (const [key, head] of [
    ["ArrowRight", size],
    ["ArrowRight", size],
    ["Home", name],
    ["End", size],
  ] as const) {
    fireEvent.keyDown(document.activeElement as Element, { key });
    expect(document.activeElement).toBe(head);
  }
  expect(stops()).toEqual([-1, 0]);
});

it("columns are hidden before others get less than their wanted width, except for the last", () => {
  const columns = [
    { name: "name", width: 100, wants: 200 },
    { name: "menu", width: 50, leaves: 1 },
    { name: "owner", width: 80, leaves: 2 },
  ].map((column) => ({ ...column, title: column.name, show: () => null }));
  const namesAt = (width: number) => fitColumns(columns, width).map((column) => column.name);
  expect(namesAt(330)).toEqual(["name", "menu", "owner"]);
  expect(namesAt(329)).toEqual(["name", "menu"]);
  expect(namesAt(150)).toEqual(["name", "menu"]);
  expect(namesAt(149)).toEqual(["name"]);
});
