// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Job } from "@/api/types";
import { makeJob, makeProgress } from "@/jobs/make-job";
import { ChartsTab } from "./charts-tab";
import { firstTab } from "./job-page";

// A picture needs a real page.
vi.mock("@/charts/chart", () => ({ Chart: ({ title }: { title: string }) => <figure>{title}</figure> }));
afterEach(cleanup);

function show(job: Job) {
  const joined = { seq: 1, time: 1000, kind: "joined", view: 1, worker: 0, step: null, reason: "" };
  vi.stubGlobal("fetch", async (address: string) =>
    Response.json(
      address.includes("/metrics")
        ? { series: [], steps: { step: [], epoch: [], view: [], time: [] } }
        : { items: [joined] },
    ),
  );
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ChartsTab job={job} />
    </QueryClientProvider>,
  );
}

it("the page of a job that ended before its first step says so, and links to the logs", async () => {
  show(makeJob({ stage: "failed", progress: null, reason: "its program ended with 1" }));
  expect(await screen.findByText("Ended before the first step")).toBeTruthy();
  expect(screen.getByRole("link", { name: "Show logs" }).getAttribute("href")).toBe("#/jobs/j-1?tab=logs");
  expect(screen.queryByText("Throughput")).toBeNull();
});

it("a job that succeeded or made steps, but logged nothing, has no metrics", async () => {
  show(makeJob({ stage: "succeeded", progress: null }));
  expect(await screen.findByText("No metrics")).toBeTruthy();
  cleanup();
  show(makeJob({ stage: "failed", progress: makeProgress({ step: 3 }) }));
  expect(await screen.findByText("No metrics")).toBeTruthy();
});

it("such a job opens on its logs; others open on their charts", () => {
  expect(firstTab(makeJob({ stage: "failed", progress: null }))).toBe("logs");
  expect(firstTab(makeJob({ stage: "failed", progress: makeProgress({ step: 3 }) }))).toBe("charts");
  expect(firstTab(makeJob({ stage: "queued", progress: null }))).toBe("charts");
});
