/** What would happen if something were run now, asked again whenever the pool changes. */

import { useQueries } from "@tanstack/react-query";
import { ask } from "@/api/client";
import type { Plan } from "@/api/types";
import type { Definition } from "@/pages/projects/project-data";

/** What a plan depends on. */
export interface Planned {
  key: string;
  name: string;
  queue: string;
  min: number;
  max: number;
  isElastic: boolean;
  priority: number | null;
  /** Directory of data, as the user names it; null: none. A plan is refused if it does not exist. */
  data?: string | null;
}

const EVERY_S = 5;

/** Return what a definition would be as a job of a project with this queue. */
export function planOf(
  definition: Definition,
  queue: string,
  priority: number | null,
  data: string | null = null,
): Planned {
  const isElastic = definition.distributed === "elastic";
  return {
    key: definition.id,
    name: definition.name,
    queue,
    min: isElastic ? definition.min_nodes : definition.max_nodes,
    max: definition.max_nodes,
    isElastic,
    priority,
    data,
  };
}

/** Return the plan of each, as if it alone were submitted now. */
export function usePlans(planned: readonly Planned[]) {
  return useQueries({
    queries: planned.map((one) => ({
      queryKey: ["pool", "plan", one],
      queryFn: ({ signal }: { signal: AbortSignal }): Promise<Plan> =>
        ask("post", "/plan", {
          body: {
            name: "run",
            program: ["run"],
            queue: one.queue,
            min_workers: one.min,
            max_workers: one.max,
            is_elastic: one.isElastic,
            data: one.data ?? null,
            ...(one.priority === null ? {} : { priority: one.priority }),
          },
          signal,
        }),
      refetchInterval: EVERY_S * 1000,
    })),
  });
}

/** Return a plan as a sentence: `Starts now with 2 of 4 slots`. */
export function sayPlan(plan: Plan, max: number): string {
  const slots = plan.starts === "now" ? plan.slots_now || plan.slots : plan.slots;
  const much = `with ${slots} of ${max} slots`;
  if (plan.starts === "now") return `Starts now ${much}${plan.slots > slots ? `, then grows to ${plan.slots}` : ""}`;
  if (plan.starts === "soon") return `Starts ${much} once they are free`;
  return "Does not start yet";
}
