/** Where the logs were at a moment. */

import { ask } from "@/api/client";

/** Return for each log the byte that was being written at a time, as far as the driver noted it. Logs that are not there are left out. */
export async function findMoment(
  job: string,
  logs: readonly string[],
  time: number,
): Promise<ReadonlyMap<string, number>> {
  const found = await Promise.allSettled(
    logs.map((log) => ask("get", "/jobs/{job}/logs/{log}/at", { path: { job, log }, query: { time } })),
  );
  const offsets = new Map<string, number>();
  for (const [place, outcome] of found.entries()) {
    if (outcome.status === "fulfilled") offsets.set(logs[place] as string, outcome.value.offset);
  }
  const refused = found.find((outcome) => outcome.status === "rejected");
  if (!offsets.size && refused) throw refused.reason;
  return offsets;
}
