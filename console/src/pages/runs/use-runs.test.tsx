// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Job, PlatformEvent } from "@/api/types";
import { makeJob } from "@/jobs/make-job";
import { type RunsFilter, readFilter } from "./filter";
import { useRuns } from "./use-runs";

const parts = vi.hoisted(() => ({ tell: (_: PlatformEvent) => {}, numStores: 0 }));
vi.mock("@/live/live", () => ({
  useEvents: (told: (event: PlatformEvent) => void) => {
    parts.tell = told;
  },
  useNumStores: () => parts.numStores,
}));
vi.mock("@/session/session", () => ({ useSession: () => ({ name: "anna" }) }));

const FILTER = readFilter(new URLSearchParams());

function Names({ filter = FILTER }: { filter?: RunsFilter }) {
  const { jobs } = useRuns(filter);
  return <p data-testid="names">{jobs.map((job) => job.name).join(" ")}</p>;
}

function show(filter?: RunsFilter) {
  const queries = new QueryClient();
  const draw = (given?: RunsFilter) => (
    <QueryClientProvider client={queries}>
      <Names {...(given ? { filter: given } : {})} />
    </QueryClientProvider>
  );
  const { rerender } = render(draw(filter));
  return { queries, change: (next?: RunsFilter) => rerender(draw(next)) };
}

const names = () => screen.getByTestId("names").textContent?.split(" ").filter(Boolean).sort();

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
  show();
  await waitFor(() => expect(names()).toEqual(["hidden", "open"]));
  seen = [open];
  const numAsked = fetched.mock.calls.length;
  await act(async () => parts.tell(leave("ben")));
  expect(fetched.mock.calls.length).toBe(numAsked);
  await act(async () => parts.tell(leave("anna")));
  await waitFor(() => expect(names()).toEqual(["open"]));
});

it("a run that was purged does not come back with an answer that was on its way", async () => {
  const all = [makeJob({ id: "j-1", name: "one" }), makeJob({ id: "j-2", name: "two", stage: "failed" })];
  vi.stubGlobal("fetch", async () => Response.json({ items: all, after: null }));
  const { queries } = show();
  await waitFor(() => expect(names()).toEqual(["one", "two"]));
  await act(async () =>
    parts.tell({
      ...{ seq: 2, time: 2, kind: "purged", reason: "", job: null, attempt: null },
      detail: { jobs: ["j-2"], uploads: [] } as never,
    }),
  );
  expect(names()).toEqual(["one"]);
  // The same answers again, and one that differs.
  all[0] = makeJob({ id: "j-1", name: "one", version: 2 });
  await act(async () => void (await queries.refetchQueries()));
  expect(names()).toEqual(["one"]);
});

it("a run that one may not see any more goes out of the answers that are known", async () => {
  let gone = "";
  const all = [makeJob({ id: "j-1", name: "one" }), makeJob({ id: "j-2", name: "two", stage: "failed" })];
  vi.stubGlobal("fetch", async (address: string) => {
    if (address.includes("stage=")) return Response.json({ items: [all[0]], after: null });
    if (address.endsWith(`/jobs/${gone}`)) return Response.json({ detail: "There is none." }, { status: 404 });
    return Response.json({ items: all, after: null });
  });
  const { queries } = show();
  await waitFor(() => expect(names()).toEqual(["one", "two"]));
  gone = "j-2";
  await act(async () =>
    parts.tell({ seq: 2, time: 2, kind: "changed", reason: "", job: "j-2", attempt: null, detail: null }),
  );
  await waitFor(() => expect(names()).toEqual(["one"]));
  all[0] = makeJob({ id: "j-1", name: "one", version: 2 });
  await act(async () => void (await queries.refetchQueries({ queryKey: ["jobs"] })));
  expect(names()).toEqual(["one"]);
});

it("a store that was restored is shown as it is, though its versions are older", async () => {
  let all = [makeJob({ id: "j-1", name: "later", version: 9 }), makeJob({ id: "j-2", name: "lost" })];
  vi.stubGlobal("fetch", async () => Response.json({ items: all, after: null }));
  const { change } = show();
  await waitFor(() => expect(names()).toEqual(["later", "lost"]));
  all = [makeJob({ id: "j-1", name: "earlier", version: 3 })];
  parts.numStores = 1;
  change();
  await waitFor(() => expect(names()).toEqual(["earlier"]));
  parts.numStores = 0;
});

it("the search asks the server for a part of the name, once nobody types", async () => {
  const old = makeJob({ id: "j-0", name: "resnet-old", stage: "failed" });
  const fetched = vi.fn(async (address: string) =>
    Response.json({ items: address.includes("search=net-o") ? [old] : [makeJob()], after: null }),
  );
  vi.stubGlobal("fetch", fetched);
  const { change } = show();
  await waitFor(() => expect(names()).toEqual(["mnist"]));
  for (const text of ["n", "ne", "net-o"]) change(readFilter(new URLSearchParams({ text })));
  await waitFor(() => expect(names()).toEqual(["resnet-old"]));
  expect(fetched.mock.calls.map(([address]) => /search=([^&]+)/.exec(address)?.[1]).filter(Boolean)).toEqual(["net-o"]);
});
