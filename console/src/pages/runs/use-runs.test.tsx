// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Job, PlatformEvent } from "@/api/types";
import { makeJob } from "@/jobs/make-job";
import { readFilter } from "./filter";
import { useRuns } from "./use-runs";

const parts = vi.hoisted(() => ({ tell: (_: PlatformEvent) => {} }));
vi.mock("@/live/live", () => ({
  useEvents: (told: (event: PlatformEvent) => void) => {
    parts.tell = told;
  },
}));
vi.mock("@/session/session", () => ({ useSession: () => ({ name: "anna" }) }));

const FILTER = readFilter(new URLSearchParams());

function Names() {
  const { jobs } = useRuns(FILTER);
  return <p data-testid="names">{jobs.map((job) => job.name).join(" ")}</p>;
}

function leave(user: string): PlatformEvent {
  const detail = { project: "p-1", action: "project.leave", target: "p-1", user } as never;
  return { seq: 1, time: 1, kind: "project", reason: "", job: null, attempt: null, detail };
}

afterEach(cleanup);

it("drops the runs of a project that its user is taken out of, but keeps those that are seen all the same", async () => {
  const open = makeJob({ id: "j-1", name: "open", project: "p-1" });
  const hidden = makeJob({ id: "j-2", name: "hidden", project: "p-1" });
  let seen: Job[] = [open, hidden];
  const fetched = vi.fn(async (_: string) => Response.json({ items: seen, after: null }));
  vi.stubGlobal("fetch", fetched);
  render(
    <QueryClientProvider client={new QueryClient()}>
      <Names />
    </QueryClientProvider>,
  );
  const names = () => screen.getByTestId("names").textContent?.split(" ").sort();
  await waitFor(() => expect(names()).toEqual(["hidden", "open"]));
  seen = [open];
  const numAsked = fetched.mock.calls.length;
  await act(async () => parts.tell(leave("ben")));
  expect(fetched.mock.calls.length).toBe(numAsked);
  await act(async () => parts.tell(leave("anna")));
  await waitFor(() => expect(names()).toEqual(["open"]));
});
