// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Job } from "@/api/types";
import { makeJob, makeProgress } from "@/jobs/make-job";
import { ToastProvider } from "@/parts/toast";
import { JobHeader } from "./header";

vi.mock("@/session/session", () => ({ useSession: () => ({}), mayChange: () => false, maySubmit: () => false }));
vi.mock("./figures", () => ({ Figures: () => null }));
vi.stubGlobal("fetch", async () => Response.json({ items: [] }));
afterEach(cleanup);

function show(job: Job) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <JobHeader job={job} />
      </ToastProvider>
    </QueryClientProvider>,
  );
}

it("a running job whose result depends on the workers is shown as not exact", () => {
  show(makeJob({ progress: makeProgress({ differed_step: 40 }) }));
  expect(screen.getByText(/Not exact since step 40: its result depends on the workers/)).toBeTruthy();
  expect(screen.getByRole("link", { name: "Show events" }).getAttribute("href")).toContain("tab=charts");
});

it("an exact job has no such warning", () => {
  show(makeJob());
  expect(screen.queryByText(/not exact/i)).toBeNull();
});

it("labels of WMLA's interface are folded away, other labels are shown", () => {
  show(makeJob({ labels: { team: "vision", "wmla.id": "1", "wmla.state": "2" } }));
  expect(screen.getByRole("link", { name: "team=vision" }).closest("details")).toBeNull();
  const folded = screen.getByText("2 WMLA labels").closest("details");
  expect(folded?.open).toBe(false);
  expect(folded?.querySelectorAll("a")).toHaveLength(2);
});
