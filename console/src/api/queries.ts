/** Questions that pages ask and keep: what is cached under which key, and how often it is asked again. */

import { keepPreviousData, type UseQueryResult, useQuery } from "@tanstack/react-query";
import { type AnswerOf, type Asked, ask, type PathOf } from "./client";

/** What a question is about: the first part of its key, by which events ask it again. */
export type Area =
  | "jobs"
  | "job"
  | "pool"
  | "queues"
  | "projects"
  | "definitions"
  | "experiments"
  | "sweeps"
  | "people"
  | "webhooks"
  | "settings";

interface Options<A> {
  /** Seconds after which it is asked again although no event asked for it; false: never. */
  every_s?: number | false;
  /** False: not now. */
  isOn?: boolean;
  /** Keep showing the last answer while another one is on its way, as when a filter changes. */
  keepsLast?: boolean;
  /** Answers are taken as they are for so long. */
  fresh_s?: number;
  initial?: A;
}

/** `ask` without its types: there are too many paths to work out the type of an answer twice. */
const askAny = ask as (method: "get", path: string, asked: object) => Promise<unknown>;

/**
 * Ask with GET and keep the answer under `key`: `useAsk(["job", id], "/jobs/{job}", { path: { job: id } })`.
 * The whole request belongs to the key by itself.
 */
export function useAsk<P extends PathOf<"get">>(
  key: readonly [Area, ...unknown[]],
  path: P,
  asked: Asked<P, "get"> = {},
  options: Options<AnswerOf<P, "get">> = {},
): UseQueryResult<AnswerOf<P, "get">> {
  return useQuery({
    queryKey: [...key, path, asked.path ?? null, asked.query ?? null],
    queryFn: ({ signal }) => askAny("get", path, { ...asked, signal }),
    refetchInterval: options.every_s ? options.every_s * 1000 : false,
    enabled: options.isOn ?? true,
    ...(options.fresh_s === undefined ? {} : { staleTime: options.fresh_s * 1000 }),
    ...(options.keepsLast ? { placeholderData: keepPreviousData } : {}),
  }) as UseQueryResult<AnswerOf<P, "get">>;
}
