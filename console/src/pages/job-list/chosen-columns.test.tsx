// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, renderHook, screen, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { makeJob } from "@/jobs/make-job";
import { nameOf, readExtras, useExtras } from "./chosen-columns";
import { ColumnsDialog } from "./columns-dialog";
import { useValues } from "./use-values";

beforeEach(() => {
  localStorage.clear();
  window.location.hash = "#/jobs?owner=anna";
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("reads names of columns, each once, and none that mean nothing", () => {
  const names = ["notes", "metric:a:b", "metric:a:b", "metric:", "owner", "parameter:lr", ""];
  expect(readExtras(names).map(nameOf)).toEqual(["notes", "metric:a:b", "parameter:lr"]);
  expect(readExtras(Array.from({ length: 40 }, (_, place) => `metric:${place}`))).toHaveLength(12);
});

it("columns stay when the page is opened again, and a link shows its own", () => {
  const { result } = renderHook(() => useExtras());
  expect(result.current[0]).toEqual([]);
  act(() => result.current[1](readExtras(["metric:acc", "notes"])));
  expect(result.current[0].map(nameOf)).toEqual(["metric:acc", "notes"]);
  expect(window.location.hash).toBe("#/jobs?owner=anna&column=metric%3Aacc&column=notes");
  cleanup();
  window.location.hash = "#/jobs";
  expect(renderHook(() => useExtras()).result.current[0].map(nameOf)).toEqual(["metric:acc", "notes"]);
  cleanup();
  window.location.hash = "#/jobs?column=parameter%3Alr";
  const again = renderHook(() => useExtras());
  expect(again.result.current[0].map(nameOf)).toEqual(["parameter:lr"]);
  act(() => again.result.current[1]([]));
  expect(again.result.current[0]).toEqual([]);
  localStorage.setItem("legato-job-columns", "{");
  window.location.hash = "#/jobs";
  cleanup();
  expect(renderHook(() => useExtras()).result.current[0]).toEqual([]);
});

it("the dialog offers what the jobs have, and keeps a chosen column that none has now", () => {
  const told: string[][] = [];
  render(
    <ColumnsDialog
      chosen={readExtras(["metric:gone"])}
      metrics={["acc"]}
      parameters={["lr"]}
      error={null}
      onChoose={(next) => told.push(next.map(nameOf))}
      onClose={() => {}}
    />,
  );
  expect(screen.getByLabelText<HTMLInputElement>("gone").checked).toBe(true);
  fireEvent.click(screen.getByLabelText("gone"));
  fireEvent.click(screen.getByLabelText("acc"));
  fireEvent.click(screen.getByLabelText("Labels"));
  fireEvent.submit(screen.getByLabelText("lr"));
  expect(told).toEqual([["metric:acc", "labels"]]);
});

it("values are asked for in hundreds, and those of ended jobs once", async () => {
  const asked: string[][] = [];
  vi.stubGlobal("fetch", async (input: RequestInfo | URL) => {
    const url = new URL(input instanceof Request ? input.url : String(input), "http://here");
    const ids = url.searchParams.getAll("job");
    asked.push(ids);
    const isComplete = (job: string) => job !== "j-1" || asked.length > 2; // its metrics are very long
    return Response.json({
      items: ids.map((job) => ({ job, parameters: {}, metrics: { acc: 1 }, is_complete: isComplete(job) })),
    });
  });
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const jobs = Array.from({ length: 150 }, (_, place) =>
    makeJob({ id: `j-${place}`, stage: place === 0 ? "running" : "succeeded" }),
  );
  const { result, rerender } = renderHook(({ isOn }) => useValues(jobs, isOn), {
    wrapper,
    initialProps: { isOn: false },
  });
  expect(asked).toEqual([]);
  rerender({ isOn: true });
  await waitFor(() => expect(result.current.values.size).toBe(150));
  expect(asked.map((ids) => ids.length)).toEqual([100, 50]);
  await act(async () => void (await client.refetchQueries()));
  expect(asked.slice(2)).toEqual([["j-0", "j-1"]]);
  await act(async () => void (await client.refetchQueries()));
  expect(asked.slice(3)).toEqual([["j-0"]]);
});
