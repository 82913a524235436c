/**
 * The jobs of a filter, live. Ended jobs do not change, so they are asked for once, page by page; those that are not
 * ended are asked for again every few seconds and at each event, all in one question. The server searches names and ids
 * alone, so what it finds comes beside the pages, of which owners, queues and reasons are searched here.
 */

import {
  type InfiniteData,
  keepPreviousData,
  type QueryClient,
  useInfiniteQuery,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { type Asked, ask } from "@/api/client";
import { Problem } from "@/api/problems";
import type { Job, Stage } from "@/api/types";
import { findLeaver, findPurged } from "@/live/effects";
import { useEvents, useNumStores } from "@/live/live";
import { MAX_SEARCH_CHARS, useLater } from "@/parts/later";
import { useSession } from "@/session/session";
import { fits, type JobsFilter } from "./filter";
import { dropJob, type JobBook, keepSince, listJobs, putJobs } from "./job-book";

const JOBS_PER_PAGE = 250;
const MAX_ACTIVE = 1000;
const ASK_ACTIVE_EVERY_MS = 3000;
const GATHER_MS = 300;
/** If more jobs than this change at once, the whole page is requested again. */
const MAX_SINGLE = 12;
const NOT_ENDED: readonly Stage[] = ["queued", "starting", "running", "pausing", "paused", "stopping"];

export interface Jobs {
  /** Those that fit the filter, the newest first. */
  jobs: Job[];
  isPending: boolean;
  error: unknown;
  retry: () => void;
  hasMore: boolean;
  isMoreComing: boolean;
  showMore: () => void;
}

/** Jobs as answered to a request of a given time. */
interface Answer {
  items: readonly Job[];
  after: string | null;
  asked_ms: number;
}

const PAGING = {
  initialPageParam: null as string | null,
  getNextPageParam: (page: Answer) => page.after,
  staleTime: 30_000,
};

async function askJobs(query: Asked<"/jobs", "get">["query"], signal: AbortSignal): Promise<Answer> {
  const asked_ms = performance.now();
  return { ...(await ask("get", "/jobs", { query: query ?? {}, signal })), asked_ms };
}

/** Return the jobs that fit. */
export function useJobs(filter: JobsFilter): Jobs {
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
  const text = filter.text.trim().slice(0, MAX_SEARCH_CHARS);
  const search = useLater(text);
  const pages = useInfiniteQuery({
    queryKey: ["job-pages", query],
    queryFn: ({ pageParam, signal }) => askJobs({ ...query, limit: JOBS_PER_PAGE, after: pageParam }, signal),
    ...PAGING,
    placeholderData: keepPreviousData,
  });
  const found = useInfiniteQuery({
    queryKey: ["job-pages", query, search],
    queryFn: ({ pageParam, signal }) => askJobs({ ...query, search, limit: JOBS_PER_PAGE, after: pageParam }, signal),
    ...PAGING,
    enabled: search !== "",
  });
  const active = useQuery({
    queryKey: ["jobs", "active", query],
    queryFn: ({ signal }) => askJobs({ ...query, stage: [...NOT_ENDED], limit: MAX_ACTIVE }, signal),
    refetchInterval: ASK_ACTIVE_EVERY_MS,
  });

  const [book, setBook] = useState<JobBook>(() => new Map());
  // What was deleted for good: an answer that was on its way does not bring it back.
  const purged = useRef(new Set<string>());
  const put = useCallback((items: readonly Job[], asked_ms: number) => {
    const left = items.filter((job) => !purged.current.has(job.id));
    setBook((before) => putJobs(before, left, asked_ms));
  }, []);
  const putAll = useCallback(
    (answers: readonly Answer[] = []) => {
      for (const { items, asked_ms } of answers) put(items, asked_ms);
    },
    [put],
  );
  // Before it is drawn, or an answer that has come would be drawn as no job for a moment.
  useLayoutEffect(() => putAll(pages.data?.pages), [pages.data, putAll]);
  useLayoutEffect(() => putAll(found.data?.pages), [found.data, putAll]);
  useLayoutEffect(() => putAll(active.data && [active.data]), [active.data, putAll]);

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
    setBook((before) => dropJob(before, job));
  };
  /** Which jobs are to be seen no more is not known here: all are asked for, and only what comes is shown. */
  const beginAnew = async ({ joins = false } = {}): Promise<void> => {
    forgetOthers(queries);
    const begun_ms = performance.now();
    // What is on its way may have been asked too early; who knows that it was not joins it.
    const how = { cancelRefetch: !joins };
    const [told, going, more] = await Promise.all([
      pages.refetch(how),
      active.refetch(how),
      search ? found.refetch(how) : null,
    ]);
    // The filter has changed, and this is not the full answer for it: request it again as well.
    if (latest.current.shown !== shown) return latest.current.beginAnew({ joins });
    if (!told.isSuccess || !going.isSuccess || more?.isSuccess === false) return;
    const answers = [...told.data.pages, going.data, ...(more?.data.pages ?? [])];
    const since_ms = Math.min(begun_ms, ...answers.map((answer) => answer.asked_ms));
    setBook((before) => keepSince(before, since_ms));
    putAll(answers);
  };
  const shown = useMemo(() => ({ query, search }), [query, search]);
  const latest = useRef({ shown, beginAnew });
  latest.current = { shown, beginAnew };
  const numStores = useNumStores();
  // Answers that are known from an earlier look at this page hold jobs that were deleted since, or ended.
  // biome-ignore lint/correctness/useExhaustiveDependencies: at each look at the page, and once for each store
  useEffect(() => {
    void beginAnew({ joins: true });
  }, [numStores]);
  const askOne = async (job: string) => {
    const asked_ms = performance.now();
    try {
      put([await ask("get", "/jobs/{job}", { path: { job } })], asked_ms);
    } catch (thrown) {
      if (thrown instanceof Problem && thrown.status === 404) forget(job);
    }
  };

  const jobs = useMemo(() => listJobs(book).filter((job) => fits(filter, job)), [book, filter]);
  const isComing = pages.isPlaceholderData || active.isLoading || text !== search || found.isLoading;
  return {
    jobs,
    isPending: pages.isPending || (jobs.length === 0 && isComing),
    error: pages.data ? (jobs.length === 0 && !found.data ? found.error : null) : pages.error,
    retry: () => void beginAnew(),
    hasMore: pages.hasNextPage || found.hasNextPage,
    isMoreComing: pages.isFetchingNextPage || found.isFetchingNextPage,
    showMore: () => {
      for (const each of [pages, found]) if (each.hasNextPage) void each.fetchNextPage();
    },
  };
}

/** Forget the answers for filters that are not shown now, because nothing updates those jobs. */
function forgetOthers(queries: QueryClient): void {
  for (const queryKey of [["job-pages"], ["jobs", "active"]]) {
    queries.removeQueries({ queryKey, predicate: (query) => query.getObserversCount() === 0 });
  }
}
