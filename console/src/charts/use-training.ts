/** What a job measured and what happened in it, as it goes on: only what is new is asked for. */

import { queryOptions, useQuery } from "@tanstack/react-query";
import { ask } from "@/api/client";
import type { Job, JobMetrics, PlatformEvent, TrainingEvent } from "@/api/types";
import { ENDED } from "@/parts/stage";
import { countPoints, goesOn, mergeMetrics, stepToAskAfter } from "./series";

const NUM_POINTS = 1200;
/** With more points than this, all are requested again, thinned by the server. */
const MAX_POINTS = 30_000;
const ASK_EVERY_MS = 2000;
const EVENTS_PER_ANSWER = 1000;

/** Return the question for the metrics of a job, thinned. */
export function askMetrics(job: Pick<Job, "id" | "stage">) {
  return queryOptions({
    queryKey: ["job", job.id, "metrics"],
    queryFn: async ({ signal, client, queryKey }): Promise<JobMetrics> => {
      const before = client.getQueryData<JobMetrics>(queryKey);
      const askAfter = (after_step?: number) =>
        ask("get", "/jobs/{job}/metrics", {
          path: { job: job.id },
          query: { points: NUM_POINTS, ...(after_step === undefined ? {} : { after_step }) },
          signal,
        });
      if (!before || countPoints(before) > MAX_POINTS) return askAfter();
      const told = await askAfter(stepToAskAfter(before));
      // An attempt that begins at step 0 has metrics of its own.
      return goesOn(before, told) ? mergeMetrics(before, told) : askAfter();
    },
    refetchInterval: ENDED.has(job.stage) ? false : ASK_EVERY_MS,
    structuralSharing: false,
  });
}

/** Return the question for what the driver of a job wrote down. */
export function askTrainingEvents(job: Pick<Job, "id" | "stage">) {
  return queryOptions({
    queryKey: ["job", job.id, "training-events"],
    queryFn: async ({ signal, client, queryKey }): Promise<TrainingEvent[]> => {
      let known = client.getQueryData<TrainingEvent[]>(queryKey) ?? [];
      for (;;) {
        const last = known.at(-1);
        const told = await ask("get", "/jobs/{job}/training-events", {
          path: { job: job.id },
          // The last one is read again, except where a new attempt has restarted the count.
          query: { after: Math.max(0, (last?.seq ?? 0) - 1), limit: EVENTS_PER_ANSWER },
          signal,
        });
        if (last && told.items[0]?.time !== last.time) {
          known = [];
          continue;
        }
        const fresh = told.items.filter((event) => event.seq > (last?.seq ?? 0));
        if (fresh.length) known = [...known, ...fresh];
        if (told.items.length < EVENTS_PER_ANSWER) return known;
      }
    },
    refetchInterval: ENDED.has(job.stage) ? false : ASK_EVERY_MS,
    structuralSharing: false,
  });
}

/** Return the question for what users and the platform did with a job. Each new event of the job asks it again. */
function askPlatformEvents(job: Pick<Job, "id">) {
  return queryOptions({
    queryKey: ["job", job.id, "events"],
    queryFn: async ({ signal, client, queryKey }): Promise<PlatformEvent[]> => {
      let known = client.getQueryData<PlatformEvent[]>(queryKey) ?? [];
      for (;;) {
        const told = await ask("get", "/jobs/{job}/events", {
          path: { job: job.id },
          query: { after: String(known.at(-1)?.seq ?? 0), limit: EVENTS_PER_ANSWER },
          signal,
        });
        if (told.items.length) known = [...known, ...told.items];
        if (told.items.length < EVENTS_PER_ANSWER) return known;
      }
    },
    structuralSharing: false,
  });
}

/** Return all of a job: what it measured, what its driver wrote down, and what users and the platform did with it. */
export function useTraining(job: Job) {
  return {
    metrics: useQuery(askMetrics(job)),
    events: useQuery(askTrainingEvents(job)),
    ofPlatform: useQuery(askPlatformEvents(job)),
  };
}
