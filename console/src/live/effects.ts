/** Which questions an event makes old. */

import type { Area } from "@/api/queries";
import type { PlatformEvent } from "@/api/types";

const OF_POOL: ReadonlySet<string> = new Set(["granted", "released", "left", "slot", "decision", "stage"]);

/** Return the beginnings of keys whose answers may be others since this event. */
export function findOld(event: PlatformEvent): (readonly [Area, ...string[]])[] {
  const old: (readonly [Area, ...string[]])[] = [];
  if (event.job !== null) {
    old.push(["jobs"], ["job", event.job]);
    if (event.kind === "stage") old.push(["experiments"]);
  }
  if (OF_POOL.has(event.kind)) old.push(["pool"], ["queues"]);
  if (event.kind === "queue") old.push(["queues"], ["pool"], ["jobs"]);
  if (event.kind === "project") old.push(["projects"], ["definitions"], ["experiments"]);
  // Jobs were seen because of the project, perhaps.
  if (findLeaver(event) !== null) old.push(["jobs"], ["job"], ["pool"]);
  return old;
}

/** Return who sees a project no more since this event; null: no user leaves one. */
export function findLeaver(event: PlatformEvent): string | null {
  const isLeaving = event.kind === "project" && event.detail?.action === "project.leave";
  return isLeaving ? String(event.detail?.user) : null;
}

/** Return the jobs that were deleted for good by what this event tells. */
export function findPurged(event: PlatformEvent): readonly string[] {
  const jobs: unknown = event.kind === "purged" ? event.detail?.jobs : null;
  return Array.isArray(jobs) ? jobs.map(String) : [];
}
