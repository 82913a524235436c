/** What people do with jobs: one request each, and the same for several at once. */

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { ask, makeKey } from "@/api/client";
import { sayProblem } from "@/api/problems";
import type { Job, Submission } from "@/api/types";
import { countOf } from "@/format/numbers";
import { useToasts } from "@/parts/toast";

export function pauseJob(job: string): Promise<Job> {
  return ask("post", "/jobs/{job}/pause", { path: { job } });
}

export function resumeJob(job: string): Promise<Job> {
  return ask("post", "/jobs/{job}/resume", { path: { job } });
}

/** Stop a job; `now`: without a checkpoint. */
export function stopJob(job: string, now = false): Promise<Job> {
  return ask("post", "/jobs/{job}/stop", { path: { job }, body: { now } });
}

export function resizeJob(job: string, min_workers: number, max_workers: number): Promise<Job> {
  return ask("post", "/jobs/{job}/resize", { path: { job }, body: { min_workers, max_workers } });
}

export interface JobPatch {
  priority?: number;
  queue?: string;
  labels?: Record<string, string | null>;
  notes?: string;
}

export function patchJob(job: string, body: JobPatch): Promise<Job> {
  return ask("patch", "/jobs/{job}", { path: { job }, body });
}

/** Start a job like another one. The key belongs to one dialog: pressing twice makes one job. */
export function cloneJob(job: string, changes: Partial<Submission>, key: string = makeKey()): Promise<Job> {
  return ask("post", "/jobs/{job}/clone", { path: { job }, body: changes, headers: { "Idempotency-Key": key } });
}

/** Ask again for all that a change of jobs makes old; events do so too, a moment later. */
export function forgetJobs(queries: QueryClient): void {
  for (const key of [["jobs"], ["job"], ["pool"], ["queues"]]) void queries.invalidateQueries({ queryKey: key });
}

/** Return how to do one thing with several jobs and say what came of it. */
export function useDoToJobs(): (
  jobs: readonly Job[],
  done: string,
  does: (job: string) => Promise<unknown>,
) => Promise<void> {
  const toasts = useToasts();
  const queries = useQueryClient();
  return async (jobs, done, does) => {
    const outcomes = await Promise.allSettled(jobs.map((job) => does(job.id)));
    const problems = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [sayProblem(outcome.reason)] : []));
    const numDone = jobs.length - problems.length;
    if (numDone) toasts.tell(jobs.length === 1 ? `${done} ${jobs[0]?.name}` : `${done} ${countOf(numDone, "job")}`);
    for (const problem of new Set(problems)) toasts.tellProblem(new Error(problem));
    forgetJobs(queries);
  };
}
