/** From who had which slot when to step lines of how many slots a job had. */

import type { StepLine } from "@/parts/slots";

interface Held {
  job: string | null;
  since: number;
  until: number | null;
}

/** Return for each job how many slots it had from each time on. What is held still goes on to `now`. */
export function linesOfAllocations(allocations: readonly Held[]): Map<string, StepLine> {
  const changes = new Map<string, Map<number, number>>();
  for (const { job, since, until } of allocations) {
    if (job === null) continue;
    const ofJob = changes.get(job) ?? new Map<number, number>();
    changes.set(job, ofJob);
    ofJob.set(since, (ofJob.get(since) ?? 0) + 1);
    if (until !== null) ofJob.set(until, (ofJob.get(until) ?? 0) - 1);
  }
  const lines = new Map<string, StepLine>();
  for (const [job, ofJob] of changes) {
    const times = [...ofJob.keys()].sort((one, other) => one - other);
    let num = 0;
    const values = times.map((time) => {
      num += ofJob.get(time) ?? 0;
      return num;
    });
    lines.set(job, { times, values });
  }
  return lines;
}
