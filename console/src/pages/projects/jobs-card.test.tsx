// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { makeJob } from "@/jobs/make-job";
import { JobsCard } from "./jobs-card";

afterEach(cleanup);

it("jobs are sorted by runtime, not by their start", async () => {
  const end = (name: string, started_at: number, ended_at: number) =>
    makeJob({ id: `j-${name}`, name, stage: "succeeded", num_slots: 0, started_at, ended_at });
  const items = [end("middle", 1000, 1200), end("long", 1100, 1500), end("short", 1300, 1310)];
  vi.stubGlobal("fetch", async () => Response.json({ items, after: null }));
  render(
    <QueryClientProvider client={new QueryClient()}>
      <JobsCard of={{ project: "p-1" }} hint="" />
    </QueryClientProvider>,
  );
  const names = () => screen.getAllByRole("link").map((link) => link.textContent);
  await screen.findByText("middle");
  fireEvent.click(screen.getByRole("button", { name: "Runtime" }));
  expect(names()).toEqual(["short", "middle", "long"]);
  fireEvent.click(screen.getByRole("button", { name: "Runtime" }));
  expect(names()).toEqual(["long", "middle", "short"]);
});

it("a job that has ended shows the slots that it might have, not 0", async () => {
  const items = [makeJob({ name: "over", stage: "succeeded", num_slots: 0, min_workers: 1, max_workers: 4 })];
  vi.stubGlobal("fetch", async () => Response.json({ items, after: null }));
  render(
    <QueryClientProvider client={new QueryClient()}>
      <JobsCard of={{ project: "p-1" }} hint="" />
    </QueryClientProvider>,
  );
  await screen.findByText("1–4");
  expect(screen.queryByText("0 of 4")).toBeNull();
});
