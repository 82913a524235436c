/** Jobs that wait: where each is in its queue, and reasons that several have. */

import { useMemo } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";

export type Positions = ReadonlyMap<string, string>;

const ASK_EVERY_S = 10;
/** From so many jobs on, their common reason is shown once above the table. */
const MANY = 3;

/** Return the position of each waiting job in its queue, such as `2 of 7`. `isOn`: there are waiting jobs. */
export function usePositions(isOn: boolean): Positions {
  const asked = useAsk(["pool"], "/pool/waiting", {}, { every_s: ASK_EVERY_S, isOn });
  return useMemo(
    () => new Map((asked.data?.items ?? []).map((one) => [one.job, `${one.position} of ${one.num_waiting}`])),
    [asked.data],
  );
}

/** Return why a job waits; null: it does not wait. */
export function reasonToWait(job: Job): string | null {
  return job.stage === "queued" ? job.decided_reason || job.reason : null;
}

/** Return the reasons that many waiting jobs have, with how many have each, the most frequent first. */
export function findCommonReasons(jobs: readonly Job[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const job of jobs) {
    const reason = reasonToWait(job);
    if (reason) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  return new Map([...counts].filter(([, num]) => num >= MANY).sort(([, one], [, other]) => other - one));
}
