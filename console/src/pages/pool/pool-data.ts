/** What the page of the pool asks for, and how often. */

import { keepPreviousData, type UseQueryResult, useQuery } from "@tanstack/react-query";
import { ask } from "@/api/client";
import type { components } from "@/api/schema";
import type { Job } from "@/api/types";
import { tellApart } from "@/jobs/names";
import { addSteps, measureArea } from "./timeline-geometry";

type Schemas = components["schemas"];
export type Move = Schemas["SlotMove"];
export type Share = Schemas["QueuePart"];
export type SlotState = Schemas["SlotState"];
export type PoolState = Schemas["PoolState"];
export type By = Schemas["By"];

export interface TimelineItem {
  key: string;
  title: string;
  /** Whether it is all that one may not see, together. */
  isHidden: boolean;
  times: readonly number[];
  slots: readonly number[];
}

/** Step lines of slots held, thinned by the server. */
export interface Timeline {
  since: number;
  until: number;
  num_slots: { times: readonly number[]; values: readonly number[] };
  items: readonly TimelineItem[];
}

/** The stretch of time that is looked at. `span_s`: up to now; else between two fixed times. */
export type Stretch = { span_s: number } | { since: number; until: number };

const MAX_POINTS = 400;
const MAX_MOVES = 1000;
/** So many lines, areas or bars are drawn; the smaller ones are added up. */
const MAX_LINES = 40;
const FASTEST_S = 3;
const SLOWEST_S = 30;
const HIDDEN = "hidden jobs";

/** Return since when a stretch is, and until when. */
export function boundsOf(stretch: Stretch, now: number): { since: number; until: number } {
  return "span_s" in stretch ? { since: now - stretch.span_s, until: now } : stretch;
}

/** Return the query of a stretch that begins so long ago as it is asked; who asks in the same second asks for the same. */
export function queryOf(stretch: Stretch): { since: number; until?: number } {
  return "span_s" in stretch ? { since: Math.floor(Date.now() / 1000) - stretch.span_s } : stretch;
}

function everyOf(stretch: Stretch): number {
  const every_s = "span_s" in stretch ? Math.min(SLOWEST_S, Math.max(FASTEST_S, stretch.span_s / 100)) : SLOWEST_S;
  return every_s * 1000;
}

/** Return a timeline with the lines in the order in which they are drawn: who came first is first. */
export function readTimeline(told: Schemas["Timeline"]): Timeline {
  const called = tellApart(told.items.map((item) => ({ id: item.key ?? HIDDEN, name: item.title ?? HIDDEN })));
  const items = told.items.map((item) => ({
    key: item.key ?? HIDDEN,
    title: called.get(item.key ?? HIDDEN) ?? HIDDEN,
    isHidden: item.key === null,
    times: item.times,
    slots: item.slots,
  }));
  return { ...told, items: items.toSorted((one, other) => (one.times[0] ?? 0) - (other.times[0] ?? 0)) };
}

const OTHERS = "others";

/** Return a timeline with only the largest lines; the rest of them are one line at the end. */
export function foldTimeline(timeline: Timeline, most: number): Timeline {
  const { items, since, until } = timeline;
  if (items.length <= most) return timeline;
  const sizes = items.map((item) => measureArea({ times: item.times, values: item.slots }, since, until));
  const order = items.map((_, place) => place).sort((one, other) => (sizes[other] ?? 0) - (sizes[one] ?? 0));
  const kept = new Set(order.slice(0, most - 1));
  const rest = items.filter((_, place) => !kept.has(place));
  const sum = addSteps(rest.map((item) => ({ times: item.times, values: item.slots })));
  const others = { key: OTHERS, title: `${rest.length} others`, isHidden: true, times: sum.times, slots: sum.values };
  return { ...timeline, items: [...items.filter((_, place) => kept.has(place)), others] };
}

export function useTimeline(by: By, stretch: Stretch): UseQueryResult<Timeline> {
  return useQuery({
    queryKey: ["pool", "timeline", by, stretch],
    queryFn: async ({ signal }) => {
      const told = await ask("get", "/timeline", { query: { by, points: MAX_POINTS, ...queryOf(stretch) }, signal });
      return foldTimeline(readTimeline(told), MAX_LINES);
    },
    refetchInterval: everyOf(stretch),
    placeholderData: keepPreviousData,
  });
}

export function useMoves(stretch: Stretch) {
  return useQuery({
    queryKey: ["pool", "moves", stretch],
    queryFn: ({ signal }) => ask("get", "/moves", { query: { limit: MAX_MOVES, ...queryOf(stretch) }, signal }),
    refetchInterval: everyOf(stretch),
    placeholderData: keepPreviousData,
  });
}

/** Moves of one moment between the same two jobs, told as one. */
export interface Handover extends Omit<Move, "slot"> {
  slots: readonly string[];
}

/** Workers leave one after the other, so slots that are given up at one time are taken at several. */
const TAKEN_WITHIN_S = 15;

/** Return moves with those put together that belong together, in the order in which they came. */
export function gatherMoves(moves: readonly Move[], within_s = 2): Handover[] {
  const gathered: (Handover & { slots: string[] })[] = [];
  for (const { slot, ...move } of moves) {
    const same = gathered.findLast(
      (other) =>
        Math.abs(other.time - move.time) <= within_s &&
        Math.abs((other.taken_at ?? 0) - (move.taken_at ?? 0)) <= TAKEN_WITHIN_S &&
        other.from_title === move.from_title &&
        other.to_title === move.to_title &&
        other.from_job === move.from_job &&
        other.to_job === move.to_job &&
        other.taken_reason === move.taken_reason,
    );
    if (same) same.slots.push(slot);
    else gathered.push({ ...move, slots: [slot] });
  }
  return gathered;
}

/** Return a job's name with its owner's, as it is written everywhere. */
export function titleOf(job: Pick<Job, "owner" | "name">): string {
  return `${job.owner}/${job.name}`;
}

/** Return the ids of those that have slots in the order in which they get their colours. */
export function startedFirst(jobs: readonly Job[]): string[] {
  return jobs
    .filter((job) => job.num_slots > 0)
    .sort((one, other) => (one.started_at ?? 0) - (other.started_at ?? 0) || one.id.localeCompare(other.id))
    .map((job) => job.id);
}
