// @vitest-environment jsdom
import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { useLogs } from "./use-logs";

class Stream {
  static opened: Stream[] = [];
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  private hearers: Record<string, (message: { data: string }) => void> = {};

  readonly address: string;

  constructor(address: string) {
    this.address = address;
    Stream.opened.push(this);
  }

  addEventListener(kind: string, told: (message: { data: string }) => void) {
    this.hearers[kind] = told;
  }

  close() {}

  tell(text: string, log = "worker-0") {
    this.hearers.log?.({ data: JSON.stringify({ log, text }) });
  }
}

describe("useLogs", () => {
  beforeEach(() => {
    Stream.opened = [];
    vi.useFakeTimers();
    vi.stubGlobal("EventSource", Stream);
  });
  afterEach(() => {
    cleanup();
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });
  const last = () => Stream.opened.at(-1) as Stream;

  it("keeps its lines while the server is away, and has none twice afterwards", async () => {
    const { result } = renderHook(() => useLogs("j-1", { hasDriver: false, numBytes: 10 }));
    const texts = () => result.current.book.lines.map((line) => line.text);
    const wait = (time_ms: number) => act(() => vi.advanceTimersByTimeAsync(time_ms));
    act(() => last().onopen?.());
    act(() => last().tell("one\n"));
    await wait(500);
    for (let lost = 0; lost < 3; lost += 1) {
      act(() => last().onerror?.());
      await wait(6000);
      expect(texts()).toEqual(["one"]);
      expect(result.current.isBroken).toBe(true);
    }
    expect(Stream.opened).toHaveLength(4);
    act(() => last().onopen?.());
    act(() => last().tell("one\ntwo\n"));
    await wait(500);
    expect(texts()).toEqual(["one", "two"]);
    expect(result.current.isBroken).toBe(false);
  });

  it("reads nothing again when a worker joins or the driver's log is added", async () => {
    const { result, rerender } = renderHook((options) => useLogs("j-1", options), {
      initialProps: { hasDriver: false, numBytes: 10 },
    });
    const { book } = result.current;
    act(() => last().onopen?.());
    act(() => last().tell("one\n"));
    rerender({ hasDriver: false, numBytes: 20 });
    act(() => last().tell("first of another\n", "worker-1"));
    expect(Stream.opened.map((stream) => stream.address)).toEqual(["/api/v1/jobs/j-1/logs"]);
    rerender({ hasDriver: true, numBytes: 30 });
    expect(Stream.opened.map((stream) => stream.address).slice(1)).toEqual(["/api/v1/jobs/j-1/logs?log=driver"]);
    act(() => last().onopen?.());
    act(() => last().tell("begins\n", "driver"));
    rerender({ hasDriver: false, numBytes: 40 });
    rerender({ hasDriver: true, numBytes: 40 });
    expect(Stream.opened).toHaveLength(2);
    await act(() => vi.advanceTimersByTimeAsync(500));
    expect(result.current.book).toBe(book);
    expect(book.lines.map((line) => line.log)).toEqual(["worker-0", "worker-1", "driver"]);
  });
});
