// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { makeJob, makeProgress } from "@/jobs/make-job";
import { Figures, sayMost, sayResize } from "./figures";
import { sayReason } from "./header";

afterEach(cleanup);

function show(job: ReturnType<typeof makeJob>) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <Figures job={job} />
    </QueryClientProvider>,
  );
}

it("the runtime of a job that was paused is that of its attempts", async () => {
  const attempts = [
    { attempt: 1, started_at: 910, ended_at: 950, outcome: "paused", reason: "" },
    { attempt: 2, started_at: 1910, ended_at: 1930, outcome: "paused", reason: "" },
  ];
  vi.stubGlobal("fetch", async () => Response.json({ items: attempts }));
  show(makeJob({ stage: "paused", num_slots: 0, attempt: 2, staged_at: 1930 }));
  expect(screen.getByText("≤ 17 min", { exact: false })).toBeTruthy();
  expect(await screen.findByText("1 min")).toBeTruthy();
  expect(screen.getByText(/paused · waited/)).toBeTruthy();
});

it("the loss says that it is the last one, and the throughput has the unit of the chart", () => {
  show(makeJob({ progress: makeProgress({ step_s: 0.5, samples_per_s: 64 }) }));
  expect(screen.getByText("last reported")).toBeTruthy();
  expect(screen.getByText("2 steps/s")).toBeTruthy();
  expect(screen.getByText("64 samples/s")).toBeTruthy();
});

it("the time of a resize is shown if it was measured", () => {
  expect(sayResize(1.234)).toBe("last resize took 1.2 s");
  expect([sayResize(0), sayResize(0.004), sayResize(null)]).toEqual([null, null, null]);
});

it("a job that has ended shows its peak slots", () => {
  const job = makeJob({ stage: "failed", num_slots: 0 });
  expect(sayMost(job, 3)).toBe("3 of 4");
  expect(sayMost(job, 0)).toBe("0 of 4");
  expect(sayMost(job, null)).toBe("1–4");
});

it("a reason is shown once", () => {
  const share = "2 of up to 4 slots: an equal share with ben/long";
  expect(sayReason(makeJob({ reason: `starts with ${share}`, decided_reason: share }))).toBe(`Starts with ${share}.`);
  expect(sayReason(makeJob({ reason: "its workers train", decided_reason: share }))).toBe(
    `Its workers train. ${share}.`,
  );
});

it("the epoch is a place in order; its number in the program is in the hint", () => {
  show(makeJob({ progress: makeProgress({ epoch: 36 }) }));
  expect(screen.getByText(/37th epoch/).title).toContain("this is epoch 36");
});
