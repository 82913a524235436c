import { expect, it, vi } from "vitest";
import { foldTimeline, gatherMoves, queryOf, readTimeline } from "./pool-data";

const item = (key: string, slots: number, from = 0) => ({
  ...{ key, title: key, isHidden: false },
  ...{ times: [from, 10], slots: [slots, 0] },
});
const timeline = (...items: ReturnType<typeof item>[]) => ({
  ...{ since: 0, until: 10, num_slots: { times: [0], values: [8] } },
  items,
});

it("keeps the largest lines, and adds the others up", () => {
  const folded = foldTimeline(timeline(item("a", 1), item("b", 4), item("c", 2), item("d", 1)), 3);
  expect(folded.items.map((one) => [one.title, one.slots[0]])).toEqual([
    ["b", 4],
    ["c", 2],
    ["2 others", 2],
  ]);
  expect(foldTimeline(timeline(item("a", 1)), 3).items).toHaveLength(1);
});

it("names what one may not see, and begins with who came first", () => {
  const told = { ...timeline(), items: [item("late", 1, 5), { ...item("x", 1), key: null, title: null }] };
  expect(readTimeline(told).items.map((one) => [one.title, one.isHidden])).toEqual([
    ["hidden jobs", true],
    ["late", false],
  ]);
});

it("tells slots that went together as one", () => {
  const move = (slot: string, time: number, to: string | null, taken_at = to === null ? null : time + 1) => ({
    ...{ slot, time, taken_at, reason: "shrinks", taken_reason: "", from_job: "j-1", from_title: "anna/a" },
    ...{ to_job: to, to_title: to },
  });
  const told = gatherMoves([move("0", 10, "j-2"), move("1", 10.5, "j-2"), move("2", 10.5, null), move("3", 60, "j-2")]);
  expect(gatherMoves([move("0", 10, "j-2", 11), move("1", 10, "j-2", 99)])).toHaveLength(2);
  expect(told.map((one) => [one.slots, one.to_job])).toEqual([
    [["0", "1"], "j-2"],
    [["2"], null],
    [["3"], "j-2"],
  ]);
});

it("asks in one second for one stretch, so that the server draws it once", () => {
  vi.useFakeTimers({ now: 5_000_100 });
  const first = queryOf({ span_s: 60 });
  vi.setSystemTime(5_000_900);
  expect(queryOf({ span_s: 60 })).toEqual(first);
  expect(first).toEqual({ since: 4940 });
  expect(queryOf({ since: 1.5, until: 2.5 })).toEqual({ since: 1.5, until: 2.5 });
  vi.useRealTimers();
});
