// @vitest-environment jsdom
import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { useLogs } from "./use-logs";

class Stream {
  static opened: Stream[] = [];
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  private hearers: Record<string, (message: { data: string }) => void> = {};

  constructor() {
    Stream.opened.push(this);
  }

  addEventListener(kind: string, told: (message: { data: string }) => void) {
    this.hearers[kind] = told;
  }

  close() {}

  tell(text: string) {
    this.hearers.log?.({ data: JSON.stringify({ log: "worker-0", text }) });
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

  it("keeps what was read while the server is away, and has nothing twice afterwards", async () => {
    const { result } = renderHook(() => useLogs("j-1", { logs: ["worker-0"], numBytes: 10 }));
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
});
