/** Parameters and last metrics of the jobs in the table. Those of ended jobs do not change, so they are asked for once. */

import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { ask } from "@/api/client";
import type { Job, JobValues } from "@/api/types";
import { ENDED } from "@/parts/stage";

/** As many as the server answers at once. */
const PER_REQUEST = 100;
const ASK_EVERY_MS = 10_000;

export type Values = ReadonlyMap<string, JobValues>;

/** Return what is known of the jobs, by job. `isOn`: a column shows it. */
export function useValues(jobs: readonly Job[], isOn: boolean): { values: Values; error: unknown } {
  const [values, setValues] = useState<Values>(() => new Map());
  const final = useRef(new Set<string>());
  const latest = useRef(jobs);
  latest.current = jobs;
  const asked = useQuery({
    queryKey: ["job-values", jobs.length, jobs[0]?.id ?? null],
    enabled: isOn && jobs.length > 0,
    refetchInterval: ASK_EVERY_MS,
    queryFn: async ({ signal }) => {
      const wanted = latest.current.filter((job) => !final.current.has(job.id));
      for (let first = 0; first < wanted.length; first += PER_REQUEST) {
        const part = wanted.slice(first, first + PER_REQUEST);
        const { items } = await ask("get", "/job-values", { query: { job: part.map((job) => job.id) }, signal });
        const read = new Map(items.map((one) => [one.job, one] as const));
        // Of very long metrics the server reads more with the next request.
        const isFinal = (job: Job) => ENDED.has(job.stage) && read.get(job.id)?.is_complete !== false;
        for (const job of part) if (isFinal(job)) final.current.add(job.id);
        setValues((before) => new Map([...before, ...read]));
      }
      return null;
    },
  });
  return { values, error: asked.error };
}

/** Return the names of all metrics and parameters of the jobs, in order. */
export function listNames(values: Values): { metrics: string[]; parameters: string[] } {
  const [metrics, parameters] = [new Set<string>(), new Set<string>()];
  for (const one of values.values()) {
    for (const name of Object.keys(one.metrics)) metrics.add(name);
    for (const name of Object.keys(one.parameters)) parameters.add(name);
  }
  const sorted = (names: Set<string>) => [...names].sort((one, other) => one.localeCompare(other, "en"));
  return { metrics: sorted(metrics), parameters: sorted(parameters) };
}
