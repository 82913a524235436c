// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Job, PlatformEvent } from "@/api/types";
import { makeJob } from "@/jobs/make-job";
import { type JobsFilter, readFilter } from "./filter";
import { useJobs } from "./use-jobs";

const parts = vi.hoisted(() => ({ tell: (_: PlatformEvent) => {}, numStores: 0 }));
vi.mock("@/live/live", () => ({
  useEvents: (told: (event: PlatformEvent) => void) => {
    parts.tell = told;
  },
  useNumStores: () => parts.numStores,
}));
vi.mock("@/session/session", () => ({ useSession: () => ({ name: "anna" }) }));

const FILTER = readFilter(new URLSearchParams());
/** Of the questions only that for jobs which have not ended tells all these stages. */
const ACTIVE = "stage=queued&stage=starting";

function Names({ filter = FILTER }: { filter?: JobsFilter }) {
  const { jobs, isPending, hasMore, showMore } = useJobs(filter);
  return (
    <>
      <p data-testid="names">{jobs.map((job) => job.name).join(" ")}</p>
      {isPending && <p>coming</p>}
      {hasMore && (
        <button type="button" onClick={showMore}>
          older
        </button>
      )}
    </>
  );
}

function show(filter?: JobsFilter) {
  const queries = new QueryClient();
  const draw = (given?: JobsFilter) => (
    <QueryClientProvider client={queries}>
      <Names {...(given ? { filter: given } : {})} />
    </QueryClientProvider>
  );
  const { rerender } = render(draw(filter));
  return {
    queries,
    change: (next?: JobsFilter) => rerender(draw(next)),
    lookAway: () => rerender(<QueryClientProvider client={queries}>away</QueryClientProvider>),
  };
}

const read = (query: string) => readFilter(new URLSearchParams(query));

const names = () => screen.getByTestId("names").textContent?.split(" ").filter(Boolean).sort();

function changeOf(job: string): PlatformEvent {
  return { seq: 2, time: 2, kind: "changed", reason: "", job, attempt: null, detail: null };
}

/** An answer that comes when it is let. */
function hold(): { letGo: () => void; held: Promise<void> } {
  let letGo = () => {};
  const held = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  return { letGo, held };
}

function leave(user: string): PlatformEvent {
  const detail = { project: "p-1", action: "project.leave", target: "p-1", user } as never;
  return { seq: 1, time: 1, kind: "project", reason: "", job: null, attempt: null, detail };
}

afterEach(cleanup);

it("drops the jobs of a project that its user is taken out of, but keeps those that are seen all the same", async () => {
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

it("a job that was purged does not come back with an answer that was on its way", async () => {
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

it("a job that one may not see any more goes out of the answers that are known", async () => {
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
  await act(async () => parts.tell(changeOf("j-2")));
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

it("the search asks the server for a part of the name, once the user stops typing", async () => {
  const old = makeJob({ id: "j-0", name: "resnet-old", stage: "failed" });
  const fetched = vi.fn(async (address: string) =>
    Response.json({ items: address.includes("search=net-o") ? [old] : [makeJob()], after: null }),
  );
  vi.stubGlobal("fetch", fetched);
  const { change } = show();
  await waitFor(() => expect(names()).toEqual(["mnist"]));
  for (const text of ["n", "ne", "net-o"]) change(read(`text=${text}`));
  await waitFor(() => expect(names()).toEqual(["resnet-old"]));
  expect(fetched.mock.calls.map(([address]) => /search=([^&]+)/.exec(address)?.[1]).filter(Boolean)).toEqual(["net-o"]);
});

it("the search finds owners and reasons in the pages, and older ones in those that are shown then", async () => {
  const old = makeJob({ id: "j-1", name: "old", owner: "ben", stage: "failed", reason: "no memory" });
  const older = { ...old, id: "j-0", name: "older" };
  vi.stubGlobal("fetch", async (address: string) => {
    if (address.includes("search=") || address.includes(ACTIVE)) return Response.json({ items: [], after: null });
    if (address.includes("after=")) return Response.json({ items: [older], after: null });
    return Response.json({ items: [old], after: "a" });
  });
  const { change } = show(read("text=BEN"));
  await waitFor(() => expect(names()).toEqual(["old"]));
  screen.getByRole("button", { name: "older" }).click();
  await waitFor(() => expect(names()).toEqual(["old", "older"]));
  change(read("text=memory"));
  expect(names()).toEqual(["old", "older"]);
});

it("older jobs come of what the search found and of the pages", async () => {
  const named = makeJob({ id: "j-2", name: "net", stage: "failed" });
  vi.stubGlobal("fetch", async (address: string) => {
    if (address.includes(ACTIVE)) return Response.json({ items: [], after: null });
    if (!address.includes("search=")) return Response.json({ items: [], after: null });
    if (!address.includes("after=")) return Response.json({ items: [named], after: "a" });
    return Response.json({ items: [{ ...named, id: "j-1", name: "net-old" }], after: null });
  });
  show(read("text=net"));
  await waitFor(() => expect(names()).toEqual(["net"]));
  screen.getByRole("button", { name: "older" }).click();
  await waitFor(() => expect(names()).toEqual(["net", "net-old"]));
  expect(screen.queryByRole("button")).toBeNull();
});

it.each(["text=none", "stage=failed"])("no job fits %s only when all answers have come", async (query) => {
  const { letGo, held } = hold();
  let numHeld = 0;
  vi.stubGlobal("fetch", async (address: string) => {
    if (!/search=none|stage=failed/.test(address)) return Response.json({ items: [makeJob()], after: null });
    numHeld += 1;
    await held;
    return Response.json({ items: [], after: null });
  });
  const { queries, change } = show();
  await waitFor(() => expect(names()).toEqual(["mnist"]));
  expect(screen.queryByText("coming")).toBeNull();
  change(read(query));
  expect(names()).toEqual([]);
  screen.getByText("coming");
  await waitFor(() => expect([numHeld, queries.isFetching()]).toEqual([1, 1]));
  screen.getByText("coming");
  letGo();
  await waitFor(() => expect(screen.queryByText("coming")).toBeNull());
  expect(names()).toEqual([]);
});

it("who comes back sees jobs as they are, and none that was deleted meanwhile", async () => {
  const gone = makeJob({ id: "j-2", name: "gone", stage: "failed" });
  let [ended, going] = [[gone], [makeJob({ id: "j-1", name: "running" })]];
  vi.stubGlobal("fetch", async (address: string) =>
    Response.json({ items: address.includes(ACTIVE) ? going : [...ended, ...going], after: null }),
  );
  const { change, lookAway } = show();
  await waitFor(() => expect(names()).toEqual(["gone", "running"]));
  lookAway();
  [ended, going] = [[makeJob({ id: "j-1", name: "ended", stage: "failed", version: 2 })], []];
  change();
  await waitFor(() => expect(names()).toEqual(["ended"]));
});

it("each look at the page asks each question once, also after a store was restored", async () => {
  parts.numStores = 1;
  const fetched = vi.fn(async (_: string) => Response.json({ items: [makeJob()], after: null }));
  vi.stubGlobal("fetch", fetched);
  const { queries, change, lookAway } = show();
  await waitFor(() => expect(names()).toEqual(["mnist"]));
  expect(fetched).toHaveBeenCalledTimes(2);
  lookAway();
  change();
  await waitFor(() => expect(queries.isFetching()).toBe(0));
  expect(fetched).toHaveBeenCalledTimes(4);
  parts.numStores = 0;
});

it("news of one job while all are requested again is not lost", async () => {
  const before = makeJob({ id: "j-1", name: "before" });
  const after = makeJob({ id: "j-1", name: "after", version: 2 });
  let wait: Promise<void> | null = null;
  vi.stubGlobal("fetch", async (address: string) => {
    if (address.endsWith("/jobs/j-1")) return Response.json(after);
    await wait;
    return Response.json({ items: [before], after: null });
  });
  const { queries } = show();
  await waitFor(() => expect(names()).toEqual(["before"]));
  const { letGo, held } = hold();
  wait = held;
  await act(async () => parts.tell(leave("anna")));
  await act(async () => parts.tell(changeOf("j-1")));
  await waitFor(() => expect(names()).toEqual(["after"]));
  await act(async () => letGo());
  await waitFor(() => expect(queries.isFetching()).toBe(0));
  expect(names()).toEqual(["after"]);
});

it("a filter that is chosen while all are requested again keeps its jobs, and loses those that may not be seen", async () => {
  const open = makeJob({ id: "j-1", name: "open", queue: "fast" });
  const hidden = makeJob({ id: "j-2", name: "hidden", queue: "fast" });
  let seen = [open, hidden];
  let wait: Promise<void> | null = null;
  vi.stubGlobal("fetch", async (address: string) => {
    const items = seen;
    if (!address.includes("queue=")) await wait;
    return Response.json({ items, after: null });
  });
  const { queries, change } = show();
  await waitFor(() => expect(names()).toEqual(["hidden", "open"]));
  const { letGo, held } = hold();
  wait = held;
  seen = [open];
  await act(async () => parts.tell(leave("anna")));
  change(read("queue=fast"));
  await waitFor(() => expect(queries.isFetching({ queryKey: ["jobs"] })).toBe(0));
  await act(async () => letGo());
  await waitFor(() => expect(names()).toEqual(["open"]));
});

it("a filter that was looked at before does not bring back what may not be seen any more", async () => {
  const [open, hidden] = [makeJob({ id: "j-1", name: "open" }), makeJob({ id: "j-2", name: "hidden", queue: "slow" })];
  let seen = [open, hidden];
  vi.stubGlobal("fetch", async (address: string) =>
    Response.json({ items: address.includes("queue=default") ? [open] : seen, after: null }),
  );
  const { change } = show();
  await waitFor(() => expect(names()).toEqual(["hidden", "open"]));
  change(read("queue=default"));
  await waitFor(() => expect(names()).toEqual(["open"]));
  seen = [open];
  await act(async () => parts.tell(leave("anna")));
  change();
  expect(names()).toEqual(["open"]);
});
