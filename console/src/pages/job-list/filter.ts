/** What the table of jobs shows: the filter as it stands in the address, and whether a job fits it. */

import type { Job, Stage } from "@/api/types";

export type Group = "all" | "running" | "waiting" | "ended";

export const GROUPS: Record<Exclude<Group, "all">, readonly Stage[]> = {
  running: ["starting", "running", "pausing", "stopping"],
  waiting: ["queued", "paused"],
  ended: ["succeeded", "failed", "stopped"],
};

export interface JobsFilter {
  stages: readonly Stage[];
  owner: string;
  project: string;
  queue: string;
  label: string;
  /** What stands anywhere in its name, its id, its owner, its queue or its reason. */
  text: string;
}

/** Names of the address's query that belong to the filter. */
export const FILTER_NAMES = ["stage", "owner", "project", "queue", "label", "text"] as const;

/** Return the filter of an address; a group stands for its stages. */
export function readFilter(query: URLSearchParams): JobsFilter {
  const stages = query.getAll("stage").flatMap((name) => GROUPS[name as keyof typeof GROUPS] ?? [name as Stage]);
  const read = (name: string) => query.get(name) ?? "";
  return {
    stages: [...new Set(stages)],
    owner: read("owner"),
    project: read("project"),
    queue: read("queue"),
    label: read("label"),
    text: read("text"),
  };
}

/** Return whether a job fits, by what is known here; of the text the server looks at name and id alone. */
export function fits(filter: JobsFilter, job: Job): boolean {
  if (filter.stages.length && !filter.stages.includes(job.stage)) return false;
  if (filter.owner && job.owner !== filter.owner) return false;
  if (filter.project && job.project !== filter.project) return false;
  if (filter.queue && job.queue !== filter.queue) return false;
  if (filter.label) {
    const [key = "", ...rest] = filter.label.split("=");
    if (job.labels[key] !== rest.join("=")) return false;
  }
  const text = filter.text.trim().toLowerCase();
  if (!text) return true;
  return [job.name, job.id, job.owner, job.queue, job.reason].some((told) => told.toLowerCase().includes(text));
}

/** Return the group whose stages are chosen, if they are those of one. */
export function groupOf(filter: JobsFilter): Group | null {
  if (!filter.stages.length) return "all";
  const chosen = [...filter.stages].sort().join();
  const found = Object.entries(GROUPS).find(([, stages]) => [...stages].sort().join() === chosen);
  return (found?.[0] as Group | undefined) ?? null;
}

export interface SavedFilter {
  name: string;
  query: string;
}

const KEY = "legato-runs-filters";

/** Return the filters that were saved in this browser. */
export function readSaved(): SavedFilter[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    if (!Array.isArray(kept)) return [];
    return kept.filter(
      (each): each is SavedFilter => typeof each?.name === "string" && typeof each?.query === "string",
    );
  } catch {
    return [];
  }
}

/** Save filters in this browser. */
export function writeSaved(saved: readonly SavedFilter[]): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(saved));
  } catch {
    // A browser that keeps nothing has the address still.
  }
}
