import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { makeAway, Problem } from "@/api/problems";
import type { PlatformEvent } from "@/api/types";
import { findOld } from "./effects";
import { Link, type LinkState, POLL_EVERY_S } from "./link";

class Stream {
  static opened: Stream[] = [];
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  isClosed = false;
  private hearers: Record<string, (message: { data: string }) => void> = {};
  readonly address: string;

  constructor(address: string) {
    this.address = address;
    Stream.opened.push(this);
  }

  addEventListener(kind: string, told: (message: { data: string }) => void) {
    this.hearers[kind] = told;
  }

  tell(event: PlatformEvent) {
    this.hearers[event.kind]?.({ data: JSON.stringify(event) });
  }

  close() {
    this.isClosed = true;
  }
}

function event(seq: number, kind = "stage", job: string | null = "j-1"): PlatformEvent {
  return { seq, kind, job, time: seq, reason: "", attempt: null, detail: null };
}

function open(read: (address: string) => Promise<{ items: PlatformEvent[]; after: number }>) {
  const heard: number[] = [];
  const states: LinkState[] = [];
  let numLinked = 0;
  let numAnew = 0;
  const link = new Link(
    {
      onEvent: (told) => heard.push(told.seq),
      onState: (state) => states.push(state),
      onLinked: () => {
        numLinked += 1;
      },
      onAnew: () => {
        numAnew += 1;
      },
    },
    { openStream: (address) => new Stream(address) as unknown as EventSource, read, now: () => 77 },
  );
  link.open();
  return { link, heard, states, numLinked: () => numLinked, numAnew: () => numAnew };
}

describe("Link", () => {
  beforeEach(() => {
    Stream.opened = [];
    vi.useFakeTimers();
  });
  afterEach(() => vi.useRealTimers());
  const last = () => Stream.opened.at(-1) as Stream;

  it("starts at the present, and continues after the last event when the stream breaks", async () => {
    const asked: string[] = [];
    const { heard, states, numLinked } = open(async (address) => {
      asked.push(address);
      return { items: [event(6), event(7)], after: 7 };
    });
    expect(last().address).toContain("after=now");
    last().onopen?.();
    last().tell(event(5));
    last().onerror?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(asked[0]).toContain("after=5&");
    expect(states.map((state) => state.is)).toEqual(["live", "polling"]);
    await vi.advanceTimersByTimeAsync(6000);
    expect(last().address).toContain("after=7");
    last().onopen?.();
    last().tell(event(7));
    last().tell(event(8));
    expect(heard).toEqual([5, 6, 7, 8]);
    expect(states.at(-1)).toEqual({ is: "live" });
    expect(numLinked()).toBe(3);
  });

  it("reports since when the server is away, retries, and misses no event", async () => {
    let isAway = true;
    const { heard, states } = open(async () => {
      if (isAway) throw makeAway();
      return { items: [event(2)], after: 2 };
    });
    last().onopen?.();
    last().tell(event(1));
    last().onerror?.();
    await vi.advanceTimersByTimeAsync(2 * POLL_EVERY_S * 1000 + 100);
    expect(states.filter((state) => state.is === "away")).toEqual([{ is: "away", since: 77 }]);
    isAway = false;
    await vi.advanceTimersByTimeAsync(POLL_EVERY_S * 1000);
    expect(states.at(-1)).toEqual({ is: "polling" });
    expect(heard).toEqual([1, 2]);
  });

  it("a refusal, such as too many streams, does not mean that the server is away", async () => {
    const { states } = open(async () => {
      throw new Problem("too-many-requests", 429, "Wait.");
    });
    last().onerror?.();
    await vi.advanceTimersByTimeAsync(100);
    expect(states).toEqual([]);
  });

  it.each(["a stream", "polling"])("notices by %s that the server's store was restored, and restarts", async (way) => {
    let newest = 9;
    const { heard, numAnew } = open(async (address) => {
      const after = /after=(\d+)/.exec(address)?.[1];
      if (after === undefined) return { items: [], after: newest };
      return { items: Number(after) < newest ? [event(newest)] : [], after: Math.max(Number(after), newest) };
    });
    last().onopen?.();
    last().tell(event(8));
    last().tell(event(9));
    await vi.advanceTimersByTimeAsync(0);
    expect(numAnew()).toBe(0);
    newest = 4;
    last().onerror?.();
    if (way === "a stream") {
      await vi.advanceTimersByTimeAsync(POLL_EVERY_S * 1000);
      last().onopen?.();
      await vi.advanceTimersByTimeAsync(0);
      expect(last().address).toContain("after=4");
      last().onopen?.();
      last().tell(event(5));
    } else {
      await vi.advanceTimersByTimeAsync(0);
      newest = 5;
      await vi.advanceTimersByTimeAsync(POLL_EVERY_S * 1000);
    }
    await vi.advanceTimersByTimeAsync(0);
    expect(heard).toEqual([8, 9, 5]);
    expect(numAnew()).toBe(1);
  });

  it("rests while the page is hidden, and continues where it was", async () => {
    const { link, heard, states } = open(async () => ({ items: [], after: 3 }));
    last().onopen?.();
    last().tell(event(3));
    link.rest();
    expect(last().isClosed).toBe(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(Stream.opened).toHaveLength(1);
    link.wake();
    link.hurry();
    expect(last().address).toContain("after=3");
    last().onopen?.();
    last().tell(event(4));
    expect(heard).toEqual([3, 4]);
    expect(states.map((state) => state.is)).toEqual(["live"]);
  });

  it("receives events of projects over the stream", () => {
    const { heard } = open(async () => ({ items: [], after: 0 }));
    last().onopen?.();
    last().tell(event(1, "project", null));
    expect(heard).toEqual([1]);
  });

  it("is silent once it is closed", async () => {
    const { link, heard } = open(async () => ({ items: [event(9)], after: 9 }));
    last().onerror?.();
    link.close();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(heard).toEqual([]);
    expect(Stream.opened).toHaveLength(1);
  });
});

describe("findOld", () => {
  it("returns the keys that an event of a job makes out of date", () => {
    expect(findOld(event(1, "changed"))).toEqual([["jobs"], ["job", "j-1"]]);
    expect(findOld(event(1, "granted"))).toContainEqual(["pool"]);
    expect(findOld(event(1, "queue", null))).toContainEqual(["queues"]);
    expect(findOld(event(1, "project", null))).toEqual([["projects"], ["definitions"], ["experiments"]]);
    const detail = { action: "project.leave", user: "ben" } as never;
    const leaving = { ...event(1, "project", null), detail };
    expect(findOld(leaving)).toEqual([["projects"], ["definitions"], ["experiments"], ["jobs"], ["job"], ["pool"]]);
  });
});
