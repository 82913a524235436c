// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Job } from "@/api/types";
import { ToastProvider } from "@/parts/toast";
import { BelongsDialog, CloneDialog, planOfClone } from "./dialogs";
import { makeJob, makeSpec } from "./make-job";

afterEach(cleanup);

it("a change of queue and labels sends only the differences, and a refusal keeps the input", async () => {
  const bodies: unknown[] = [];
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    if (address.endsWith("/queues")) return Response.json({ items: [{ name: "default" }, { name: "night" }] });
    bodies.push(JSON.parse(String(init.body)));
    return Response.json({ detail: "The queue is closed to you." }, { status: 403 });
  });
  const job = makeJob({ labels: { team: "vision", "wmla.id": "7", old: "1", same: "x" } });
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <BelongsDialog job={job} onClose={() => {}} />
      </ToastProvider>
    </QueryClientProvider>,
  );
  const button = () => screen.getByRole<HTMLButtonElement>("button", { name: "Save", hidden: true });
  const type = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });
  expect(button().disabled).toBe(true);
  expect(screen.queryByLabelText("Remove wmla.id")).toBeNull();
  await screen.findByText("night");
  type("Queue", "night");
  type("Labels: value 1", "speech");
  fireEvent.click(screen.getByLabelText("Remove old"));
  type("Labels: name 3", "same");
  expect(screen.getByText("same appears twice.")).toBeTruthy();
  expect(button().disabled).toBe(true);
  type("Labels: name 3", "new");
  type("Labels: value 3", "2");
  await act(async () => void fireEvent.submit(screen.getByLabelText("Queue")));
  expect(bodies).toEqual([{ queue: "night", labels: { team: "speech", old: null, new: "2" } }]);
  expect(screen.getByRole("alert", { hidden: true }).textContent).toBe("The queue is closed to you.");
  expect(screen.getByLabelText<HTMLInputElement>("Labels: value 3").value).toBe("2");
});

it("a change by another user while the dialog is open is not undone", () => {
  vi.stubGlobal("fetch", async () => Response.json({ items: [] }));
  const draw = (job: Job) => (
    <QueryClientProvider client={client}>
      <ToastProvider>
        <BelongsDialog job={job} onClose={() => {}} />
      </ToastProvider>
    </QueryClientProvider>
  );
  const client = new QueryClient();
  const { rerender } = render(draw(makeJob({ labels: { team: "vision" } })));
  rerender(draw(makeJob({ queue: "night", labels: { team: "speech", new: "1" } })));
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save", hidden: true }).disabled).toBe(true);
});

it("the clone dialog shows a start preview, and only existing queues", async () => {
  const bodies: unknown[] = [];
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    if (address.endsWith("/queues")) return Response.json({ items: [{ name: "default" }, { name: "night" }] });
    bodies.push(JSON.parse(String(init.body)));
    const effects = [{ job: "j-2", title: "ben/long", before: 4, after: 2 }];
    return Response.json({ starts: "now", slots: 2, slots_now: 2, reason: "", effects });
  });
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <CloneDialog job={makeJob()} spec={makeSpec()} onClose={() => {}} />
      </ToastProvider>
    </QueryClientProvider>,
  );
  expect(await screen.findByText("Starts now with 2 of 4 slots")).toBeTruthy();
  fireEvent.change(screen.getByLabelText("Name"), { target: { value: "other" } });
  expect(screen.getByText("Starts now with 2 of 4 slots")).toBeTruthy();
  expect(bodies).toHaveLength(1);
  expect(screen.getByText("ben/long")).toBeTruthy();
  await screen.findByText("night");
  fireEvent.change(screen.getByLabelText("Queue"), { target: { value: "night" } });
  fireEvent.change(screen.getByLabelText("Maximum slots"), { target: { value: "8" } });
  await screen.findByText("Starts now with 2 of 8 slots");
  expect(bodies.at(-1)).toMatchObject({ queue: "night", min_workers: 1, max_workers: 8, priority: 5000 });
});

it("no preview is requested for invalid numbers", () => {
  const values = { min_workers: "1", max_workers: "4", priority: "5000", queue: "default" };
  const job = makeJob();
  expect(planOfClone(job, values)?.max).toBe(4);
  expect(planOfClone(makeJob({ is_elastic: false }), values)?.min).toBe(4);
  for (const wrong of [{ min_workers: "5" }, { max_workers: "" }, { priority: "0" }, { priority: "10001" }])
    expect(planOfClone(job, { ...values, ...wrong })).toBeNull();
});
