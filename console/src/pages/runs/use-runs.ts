/**
 * The runs of a filter, live. Ended runs do not change, so they are asked for once, page by page; those that are not
 * ended are asked for again every few seconds and at each event, all in one question.
 */

import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { ask } from "@/api/client";
import { Problem } from "@/api/problems";
import { useAsk } from "@/api/queries";
import type { Job, Stage } from "@/api/types";
import { findLeaver } from "@/live/effects";
import { useEvents } from "@/live/live";
import { useSession } from "@/session/session";
import { fits, type RunsFilter } from "./filter";
import { dropRun, listRuns, putRuns, type RunBook } from "./run-book";

const RUNS_PER_PAGE = 250;
const MAX_ACTIVE = 1000;
const ASK_ACTIVE_EVERY_S = 3;
const GATHER_MS = 300;
/** Of more runs that changed at once the page is asked for anew. */
const MAX_SINGLE = 12;
const NOT_ENDED: readonly Stage[] = ["queued", "starting", "running", "pausing", "paused", "stopping"];

export interface Runs {
  /** Those that fit the filter, the newest first. */
  jobs: Job[];
  isPending: boolean;
  error: unknown;
  retry: () => void;
  hasMore: boolean;
  isMoreComing: boolean;
  showMore: () => void;
}

interface JobPage {
  items: readonly Job[];
}

/** Return the runs that fit. */
export function useRuns(filter: RunsFilter): Runs {
  const queries = useQueryClient();
  const { name } = useSession();
  const { stages, owner, project, queue, label } = filter;
  const query = useMemo(
    () => ({
      ...(stages.length ? { stage: [...stages] } : {}),
      ...(owner ? { owner } : {}),
      ...(project ? { project } : {}),
      ...(queue ? { queue } : {}),
      ...(label ? { label: [label] } : {}),
    }),
    [stages, owner, project, queue, label],
  );
  const pages = useInfiniteQuery({
    queryKey: ["job-pages", query],
    queryFn: ({ pageParam, signal }) =>
      ask("get", "/jobs", { query: { ...query, limit: RUNS_PER_PAGE, after: pageParam }, signal }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.after,
    staleTime: 30_000,
  });
  const active = useAsk(
    ["jobs"],
    "/jobs",
    { query: { ...query, stage: [...NOT_ENDED], limit: MAX_ACTIVE } },
    { every_s: ASK_ACTIVE_EVERY_S },
  );

  const [book, setBook] = useState<RunBook>(() => new Map());
  useEffect(() => {
    setBook((before) => putRuns(before, gather(pages.data?.pages, active.data)));
  }, [pages.data, active.data]);

  const changed = useRef(new Set<string>());
  const timer = useRef<number | undefined>(undefined);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  useEvents((event) => {
    if (findLeaver(event) === name) void beginAnew();
    if (event.job === null) return;
    if (event.kind === "purged") setBook((before) => dropRun(before, event.job as string));
    if (event.kind !== "stage" && event.kind !== "changed") return;
    changed.current.add(event.job);
    timer.current ??= window.setTimeout(() => {
      timer.current = undefined;
      const ids = [...changed.current];
      changed.current.clear();
      if (ids.length > MAX_SINGLE) void queries.invalidateQueries({ queryKey: ["job-pages"] });
      else for (const id of ids) void askOne(id);
    }, GATHER_MS);
  });
  /** Which runs were seen through the project alone is not known here: all are asked for, and only what comes is shown. */
  const beginAnew = async () => {
    const [told, going] = await Promise.all([pages.refetch(), active.refetch()]);
    if (told.isSuccess && going.isSuccess) setBook(putRuns(new Map(), gather(told.data.pages, going.data)));
  };
  const askOne = async (job: string) => {
    try {
      const found = await ask("get", "/jobs/{job}", { path: { job } });
      setBook((before) => putRuns(before, [found]));
    } catch (thrown) {
      if (thrown instanceof Problem && thrown.status === 404) setBook((before) => dropRun(before, job));
    }
  };

  const jobs = useMemo(() => listRuns(book).filter((job) => fits(filter, job)), [book, filter]);
  return {
    jobs,
    isPending: pages.isPending,
    error: pages.data ? null : pages.error,
    retry: () => void pages.refetch(),
    hasMore: pages.hasNextPage,
    isMoreComing: pages.isFetchingNextPage,
    showMore: () => void pages.fetchNextPage(),
  };
}

function gather(pages: readonly JobPage[] = [], active?: JobPage): Job[] {
  return [...pages.flatMap((page) => page.items), ...(active?.items ?? [])];
}
