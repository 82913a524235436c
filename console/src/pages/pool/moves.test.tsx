// @vitest-environment jsdom
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { Moves } from "./moves";
import { findWider, sayStretch } from "./timeline-card";

afterEach(cleanup);

it("a stretch says what it is, and which one is longer", () => {
  expect(sayStretch({ span_s: 300 })).toBe("in the last 5 min");
  expect(sayStretch({ span_s: 200 })).toBe("in the last 3 min 20 s");
  expect(sayStretch({ since: 1_700_000_000, until: 1_700_000_060 })).toMatch(/^from .+ to .+/);
  expect(findWider({ span_s: 300 })?.value).toBe("900");
  expect(findWider({ since: 0, until: 4000 }, 4000)?.label).toBe("8 h");
  expect(findWider({ since: 0, until: 120 }, 250_000)?.label).toBe("7 days");
  expect(findWider({ since: 0, until: 120 }, 700_000)).toBeNull();
  expect(findWider({ span_s: 604_800 })).toBeNull();
});

it("without moves the page names the time, and offers a longer one", () => {
  const look = vi.fn();
  render(<Moves moves={[]} when="in the last 5 min" wider={{ label: "15 min", onLook: look }} />);
  expect(screen.getByText("No reallocations in the last 5 min")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Show the last 15 min" }));
  expect(look).toHaveBeenCalledOnce();
});

it("tells why a job gave slots up, and why the next one got them", () => {
  const move = (slot: string, time: number, from: string | null, reason: string, taken_reason: string) => ({
    ...{ slot, time, reason, taken_at: time, taken_reason },
    ...{ from_job: null, from_title: from, to_job: null, to_title: "ben/b" },
  });
  const moves = [
    move("n/0", 1000, "ann/a", "shrinks 2 → 1: ben/b waits", "starts with 1 slot"),
    move("n/1", 1001, null, "", "grows 1 → 3: its maximum"),
    move("n/2", 1001, null, "", "grows 1 → 3: its maximum"),
    move("n/3", 1001.5, null, "", "grows 3 → 4: its maximum"),
  ];
  render(<Moves moves={moves} when="now" wider={null} />);
  const told = screen.getAllByRole("listitem").map((row) => row.querySelector(".grow")?.textContent);
  expect(told).toEqual([
    "free1 slot toben/bgrows 3 → 4: its maximum",
    "free2 slots toben/bgrows 1 → 3: its maximum",
    "ann/a1 slot toben/bshrinks 2 → 1: ben/b waitsstarts with 1 slot",
  ]);
});

it("says when the next job got a slot that was free for a while", () => {
  const move = {
    time: 1000,
    slot: "n/0",
    from_job: null,
    from_title: "ann/a",
    to_job: null,
    to_title: "ben/b",
    reason: "",
    taken_reason: "",
  };
  const draw = (taken_at: number | null) => {
    render(<Moves moves={[{ ...move, taken_at }]} when="now" wider={null} />);
    const told = screen.queryByText(/^at /) !== null;
    cleanup();
    return told;
  };
  expect([draw(1060), draw(1001), draw(null)]).toEqual([true, false, false]);
});
