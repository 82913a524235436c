// @vitest-environment jsdom

import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { act, cleanup, render } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LiveProvider } from "./live";

class Stream {
  static last: Stream;
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  private hearers: Record<string, (message: { data: string }) => void> = {};

  constructor() {
    Stream.last = this;
  }

  addEventListener(kind: string, told: (message: { data: string }) => void) {
    this.hearers[kind] = told;
  }

  close() {}

  tell(seq: number) {
    this.hearers.stage?.({ data: JSON.stringify({ seq, kind: "stage", job: "j-1", time: seq, reason: "" }) });
  }
}

function Asking({ read, signals }: { read: () => Promise<number>; signals: AbortSignal[] }) {
  const asked = useQuery({
    queryKey: ["jobs"],
    queryFn: ({ signal }) => {
      signals.push(signal);
      return read();
    },
  });
  return <p>{asked.data ?? "nothing"}</p>;
}

describe("LiveProvider", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("EventSource", Stream);
  });
  afterEach(() => {
    cleanup();
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  it("cancels no request while events come, and repeats it after its answer", async () => {
    const answers: ((value: number) => void)[] = [];
    const signals: AbortSignal[] = [];
    const read = () => new Promise<number>((answer) => answers.push(answer));
    const shown = render(
      <QueryClientProvider client={new QueryClient()}>
        <LiveProvider>
          <Asking read={read} signals={signals} />
        </LiveProvider>
      </QueryClientProvider>,
    );
    for (let seq = 1; seq <= 5; seq += 1) {
      act(() => Stream.last.tell(seq));
      await act(() => vi.advanceTimersByTimeAsync(300));
    }
    expect(answers).toHaveLength(1);
    expect(signals[0]?.aborted).toBe(false);
    answers[0]?.(1);
    await act(() => vi.advanceTimersByTimeAsync(300));
    expect(shown.container.textContent).toBe("1");
    expect(answers).toHaveLength(2);
    answers[1]?.(2);
    await act(() => vi.advanceTimersByTimeAsync(1000));
    expect(shown.container.textContent).toBe("2");
    expect(answers).toHaveLength(2);
  });
});
