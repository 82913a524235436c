/** The differences of two jobs: what was changed when one was made from the other. */

import type { Job, Spec } from "@/api/types";
import { formatBytes } from "@/format/numbers";
import { formatDuration } from "@/format/time";
import { joinCommand } from "@/jobs/command";

export interface Fact {
  name: string;
  value: string;
}

export interface Difference {
  name: string;
  before: string | null;
  after: string | null;
}

/** Return all that makes a job what it is, by name, as text. Fields that were not chosen are left out. */
export function listFacts(job: Job, spec: Spec): Fact[] {
  const facts: Fact[] = [];
  const add = (name: string, value: unknown) => {
    if (value === null || value === undefined || value === "") return;
    facts.push({ name, value: String(value) });
  };
  add("Name", job.name);
  add("Command", joinCommand(spec.program));
  add("Framework", spec.framework);
  // Code is shown to users who may use it.
  add("Code", job.code ?? (spec.directory === null ? "(not shown)" : null));
  add("Directory", spec.directory);
  add("Data", spec.data);
  add("Distributed training", job.is_elastic ? "elastic" : job.max_workers === 1 ? "single" : "static");
  add("Minimum slots", job.min_workers);
  add("Maximum slots", job.max_workers * job.gpus_per_worker);
  add("GPUs per worker", job.gpus_per_worker);
  add("GPU type", spec.gpu_type);
  add("Queue", job.queue);
  add("Priority", job.priority);
  add("Threads per worker", spec.num_threads);
  add("CPU capability", spec.cpu_capability);
  add("Python environment", spec.python);
  add("Micro-batches per step", spec.num_micro_batches);
  add("Seed", spec.seed);
  add("Checkpoint every", spec.checkpoint_every);
  add("Checkpoints kept", spec.keep);
  add("Memory per worker", spec.memory_bytes === null ? null : formatBytes(spec.memory_bytes));
  add("CPU cores per worker", spec.num_cpus);
  add("Heartbeat timeout", formatDuration(spec.heartbeat_limit_s));
  add("Collective timeout", formatDuration(spec.collective_limit_s));
  add("Max retries", job.max_retries);
  add("Time limit", spec.max_run_s === null ? null : `${spec.max_run_s} s`);
  for (const [name, value] of Object.entries(spec.parameters)) add(`Parameter ${name}`, value);
  for (const [name, value] of Object.entries(spec.environment)) add(`Variable ${name}`, value ?? "(not shown)");
  for (const [name, value] of Object.entries(job.labels)) add(`Label ${name}`, value);
  return facts;
}

/** Return what differs, in the order in which it stands in the later one; what is gone comes last. */
export function findDifferences(before: readonly Fact[], after: readonly Fact[]): Difference[] {
  const old = new Map(before.map((fact) => [fact.name, fact.value]));
  const now = new Map(after.map((fact) => [fact.name, fact.value]));
  const names = [...now.keys(), ...[...old.keys()].filter((name) => !now.has(name))];
  return names
    .map((name) => ({ name, before: old.get(name) ?? null, after: now.get(name) ?? null }))
    .filter((each) => each.before !== each.after);
}

/** Return the names by which several jobs differ, each with the value of every job. */
export function compareFacts(
  jobs: readonly (readonly Fact[])[],
): { name: string; values: (string | null)[]; differs: boolean }[] {
  const maps = jobs.map((facts) => new Map(facts.map((fact) => [fact.name, fact.value])));
  const names = [...new Set(jobs.flatMap((facts) => facts.map((fact) => fact.name)))];
  return names.map((name) => {
    const values = maps.map((map) => map.get(name) ?? null);
    return { name, values, differs: new Set(values).size > 1 };
  });
}
