/**
 * The runs of a filter, live. Ended runs do not change, so they are asked for once, page by page; those that are not
 * ended are asked for again every few seconds and at each event, all in one question.
 */

import { type InfiniteData, keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type Asked, ask } from "@/api/client";
import { Problem } from "@/api/problems";
import type { Job, Stage } from "@/api/types";
import { findLeaver, findPurged } from "@/live/effects";
import { useEvents, useNumStores } from "@/live/live";
import { useSession } from "@/session/session";
import { fits, type RunsFilter } from "./filter";
import { dropRun, listRuns, putRuns, type RunBook } from "./run-book";

const RUNS_PER_PAGE = 250;
const MAX_ACTIVE = 1000;
const ASK_ACTIVE_EVERY_MS = 3000;
const TYPING_MS = 250;
const MAX_SEARCH_CHARS = 255;
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

/** Runs as they were told to a question that was asked at a time. */
interface Answer {
  items: readonly Job[];
  after: string | null;
  asked_ms: number;
}

async function askRuns(query: Asked<"/jobs", "get">["query"], signal: AbortSignal): Promise<Answer> {
  const asked_ms = performance.now();
  return { ...(await ask("get", "/jobs", { query: query ?? {}, signal })), asked_ms };
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
  const search = useLater(filter.text.trim().slice(0, MAX_SEARCH_CHARS));
  const pages = useInfiniteQuery({
    queryKey: ["job-pages", query, search],
    queryFn: ({ pageParam, signal }) =>
      askRuns({ ...query, ...(search ? { search } : {}), limit: RUNS_PER_PAGE, after: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.after,
    staleTime: 30_000,
    placeholderData: keepPreviousData,
  });
  const active = useQuery({
    queryKey: ["jobs", "active", query],
    queryFn: ({ signal }) => askRuns({ ...query, stage: [...NOT_ENDED], limit: MAX_ACTIVE }, signal),
    refetchInterval: ASK_ACTIVE_EVERY_MS,
  });

  const [book, setBook] = useState<RunBook>(() => new Map());
  // What was deleted for good: an answer that was on its way does not bring it back.
  const purged = useRef(new Set<string>());
  const put = useCallback((items: readonly Job[], asked_ms: number) => {
    const left = items.filter((job) => !purged.current.has(job.id));
    setBook((before) => putRuns(before, left, asked_ms));
  }, []);
  const putAll = useCallback(
    (answers: readonly Answer[] = []) => {
      for (const { items, asked_ms } of answers) put(items, asked_ms);
    },
    [put],
  );
  useEffect(() => putAll(pages.data?.pages), [pages.data, putAll]);
  useEffect(() => putAll(active.data && [active.data]), [active.data, putAll]);

  const changed = useRef(new Set<string>());
  const timer = useRef<number | undefined>(undefined);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  useEvents((event) => {
    if (findLeaver(event) === name) void beginAnew();
    for (const job of findPurged(event)) {
      purged.current.add(job);
      forget(job);
    }
    if (event.job === null) return;
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
  /** Out of the table, and out of the answers of which it is made. */
  const forget = (job: string) => {
    const leaveOut = (answer: Answer): Answer => ({ ...answer, items: answer.items.filter((one) => one.id !== job) });
    queries.setQueriesData<InfiniteData<Answer>>(
      { queryKey: ["job-pages"] },
      (known) => known && { ...known, pages: known.pages.map(leaveOut) },
    );
    queries.setQueriesData<Answer>({ queryKey: ["jobs", "active"] }, (known) => known && leaveOut(known));
    setBook((before) => dropRun(before, job));
  };
  /** Which runs are to be seen no more is not known here: all are asked for, and only what comes is shown. */
  const beginAnew = async () => {
    const [told, going] = await Promise.all([pages.refetch(), active.refetch()]);
    if (!told.isSuccess || !going.isSuccess) return;
    setBook(new Map());
    putAll([...told.data.pages, going.data]);
  };
  const numStores = useNumStores();
  // biome-ignore lint/correctness/useExhaustiveDependencies: once for each store
  useEffect(() => {
    if (numStores) void beginAnew();
  }, [numStores]);
  const askOne = async (job: string) => {
    const asked_ms = performance.now();
    try {
      put([await ask("get", "/jobs/{job}", { path: { job } })], asked_ms);
    } catch (thrown) {
      if (thrown instanceof Problem && thrown.status === 404) forget(job);
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

/** Return a text as it was when nobody had typed for a moment. */
function useLater(text: string): string {
  const [later, setLater] = useState(text);
  useEffect(() => {
    const timer = window.setTimeout(() => setLater(text), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [text]);
  return later;
}
