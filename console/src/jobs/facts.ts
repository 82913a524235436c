/** Facts of a job that are computed: its progress, its time, the actions that are allowed. */

import type { Attempt, Job, Stage } from "@/api/types";
import { ENDED } from "@/parts/stage";

const WITH_SLOTS: ReadonlySet<Stage> = new Set(["starting", "running", "pausing", "stopping"]);
const CAN_PAUSE: ReadonlySet<Stage> = new Set(["queued", "starting", "running"]);

/** What one may do with a job in its stage; whether one may do it at all is another matter. */
export function canDo(action: JobAction, job: Job): boolean {
  if (action === "pause") return CAN_PAUSE.has(job.stage);
  if (action === "resume") return job.stage === "paused";
  // What is being stopped can only be stopped at once.
  if (job.stage === "stopping") return action === "stop";
  return !ENDED.has(job.stage);
}

export type JobAction = "pause" | "resume" | "stop" | "resize" | "priority";

/** Return the part of its steps that a job has done, 0 to 1; null if its program does not say how many there are. */
export function shareDone(job: Job): number | null {
  if (job.stage === "succeeded") return 1;
  const { step, num_steps } = job.progress ?? {};
  if (step === null || step === undefined || !num_steps) return null;
  return Math.min(1, step / num_steps);
}

/** Return the seconds until a running job has done all its steps at its present pace; null: unknown. */
export function secondsLeft(job: Job, now: number): number | null {
  const progress = job.progress;
  if (job.stage !== "running" || !progress?.num_steps || progress.step === null || !progress.step_s) return null;
  const left = (progress.num_steps - progress.step) * progress.step_s;
  // What was measured is a moment old; time went on since, but no further than one look.
  return Math.max(0, left - Math.min(Math.max(0, now - progress.time), 10));
}

/** Return the seconds that a job waited before its first start, or waits by now. */
export function secondsWaited(job: Job, now: number): number {
  return Math.max(0, (job.started_at ?? job.ended_at ?? now) - job.submitted_at);
}

/** Return the seconds from its first start to when it last had slots, pauses between included; null: it did not start. */
export function secondsRun(job: Job, now: number): number | null {
  if (job.started_at === null) return null;
  const until = job.ended_at ?? (WITH_SLOTS.has(job.stage) ? now : job.staged_at);
  return Math.max(0, until - job.started_at);
}

/** Return whether `secondsRun` may hold times without slots: it was started more than once, or waits to be. */
export function mayHavePaused(job: Job): boolean {
  return job.attempt > 1 || (job.stage === "queued" && job.started_at !== null);
}

/** Return the seconds that a job held slots, over all its attempts, as its limit of time counts them. */
export function secondsHeld(attempts: readonly Pick<Attempt, "started_at" | "ended_at">[], now: number): number {
  return attempts.reduce((sum, one) => sum + Math.max(0, (one.ended_at ?? now) - one.started_at), 0);
}

/** Return the slots of a job: `2 of 4`, and those that it may have, `1–4`, where it has none. */
export function saySlots(job: Job): string {
  const bounds = job.min_workers === job.max_workers ? `${job.max_workers}` : `${job.min_workers}–${job.max_workers}`;
  return WITH_SLOTS.has(job.stage) || job.num_slots > 0 ? `${job.num_slots} of ${job.max_workers}` : bounds;
}

/** Return the most slots that were held at once; who takes one in the moment in which another is left has no more. */
export function mostSlots(allocations: readonly { since: number; until: number | null }[]): number {
  const changes = allocations.flatMap(({ since, until }) => [
    { time: since, by: 1 },
    ...(until === null ? [] : [{ time: until, by: -1 }]),
  ]);
  let [num, most] = [0, 0];
  for (const { by } of changes.sort((one, other) => one.time - other.time || one.by - other.by)) {
    num += by;
    most = Math.max(most, num);
  }
  return most;
}

/** Return slots times seconds that a list of allocations stands for, until now where they are still held. */
export function slotSeconds(allocations: readonly { since: number; until: number | null }[], now: number): number {
  return allocations.reduce((sum, held) => sum + Math.max(0, (held.until ?? now) - held.since), 0);
}

/** Return what is to be said of a job whose result was found to depend on the workers; null of one that is exact. */
export function sayInexact(job: Pick<Job, "progress">): string | null {
  const step = job.progress?.differed_step ?? null;
  return step === null ? null : `not exact since step ${step}: its result depends on the workers`;
}

/** Return why a job is in its stage, and first of all that it is not exact, where that is so and not said yet. */
export function tellReason(job: Pick<Job, "progress" | "reason">, reason = job.reason): string {
  const inexact = sayInexact(job);
  return inexact === null || reason.includes("not exact") ? reason : `${inexact}; ${reason}`;
}

/** Legato's interface for WMLA keeps in labels what WMLA's answers contain; few users look for it. */
export function isOfPlatform(label: string): boolean {
  return label === "wmla" || label.startsWith("wmla.");
}
