/** A training definition as it is being written: fields as they stand in the form, and the body that is made of them. */

import type { Definition, DefinitionBody, Distributed, FieldErrors } from "@/pages/projects/project-data";
import { type ParameterValue, readValue, splitCommand } from "./command";
import type { Packed } from "./packing/pack";

export interface Pair {
  name: string;
  value: string;
}

/** Source of the code: picked here, on the machines, or that of the definition from which this one is made. */
export type CodeFrom = "upload" | "directory" | "kept";

export interface DefinitionDraft {
  name: string;
  description: string;
  framework: string;
  command: string;
  codeFrom: CodeFrom;
  packed: Packed | null;
  keptCode: string | null;
  directory: string;
  distributed: Distributed;
  minNodes: string;
  maxNodes: string;
  numThreads: string;
  cpuCapability: string;
  python: string;
  parameters: readonly Pair[];
  environment: readonly Pair[];
  seed: string;
  checkpointEvery: string;
  maxRetries: string;
  maxRunMinutes: string;
  /** Id of the definition from which this one is made. */
  cloneOf: string | null;
}

export const EMPTY_DRAFT: DefinitionDraft = {
  name: "",
  description: "",
  framework: "",
  command: "",
  codeFrom: "upload",
  packed: null,
  keptCode: null,
  directory: "",
  distributed: "elastic",
  minNodes: "1",
  maxNodes: "4",
  numThreads: "1",
  cpuCapability: "",
  python: "",
  parameters: [],
  environment: [],
  seed: "",
  checkpointEvery: "",
  maxRetries: "0",
  maxRunMinutes: "",
  cloneOf: null,
};

/** Return the draft that makes the same definition again. */
export function draftOf(definition: Definition): DefinitionDraft {
  const text = (value: number | null | undefined) => (value === null || value === undefined ? "" : String(value));
  return {
    name: definition.name,
    description: definition.description,
    framework: definition.framework,
    command: definition.command,
    codeFrom: definition.code === null ? "directory" : "kept",
    packed: null,
    keptCode: definition.code,
    directory: definition.directory ?? "",
    distributed: definition.distributed,
    minNodes: text(definition.min_nodes),
    maxNodes: text(definition.max_nodes),
    numThreads: text(definition.num_threads),
    cpuCapability: definition.cpu_capability ?? "",
    python: definition.python ?? "",
    parameters: Object.entries(definition.parameters).map(([name, value]) => ({ name, value: String(value) })),
    environment: Object.entries(definition.environment).map(([name, value]) => ({ name, value: value ?? "" })),
    seed: text(definition.seed),
    checkpointEvery: definition.checkpoint_every ?? "",
    maxRetries: text(definition.max_retries),
    maxRunMinutes: definition.max_run_s === null ? "" : String(definition.max_run_s / 60),
    cloneOf: definition.id,
  };
}

/** Return a name that is not yet taken: `digits`, `digits 2`, `digits 3`. */
export function nextName(name: string, taken: readonly string[]): string {
  if (!taken.includes(name)) return name;
  const bare = name.replace(/ \d+$/, "");
  for (let number = 2; ; number += 1) {
    const wanted = `${bare} ${number}`;
    if (!taken.includes(wanted)) return wanted;
  }
}

/** Return what can be seen to be wrong without asking the server. */
export function checkDraft(draft: DefinitionDraft): FieldErrors {
  const wrong: Record<string, string> = {};
  if (!draft.name.trim()) wrong.name = "Enter a name.";
  const split = splitCommand(draft.command);
  if (split.wrong) wrong.command = split.wrong;
  else if (split.words?.length === 0)
    wrong.command = "Enter the script and its arguments, such as train.py --epochs 3.";
  if (draft.codeFrom === "upload" && !draft.packed) wrong.code = "Choose a zip, files or a folder.";
  if (draft.codeFrom === "directory" && !draft.directory.startsWith("/")) {
    wrong.directory = "Enter the absolute path of the directory, such as /data/mnist.";
  }
  const max = readCount(draft.maxNodes);
  const min = readCount(draft.minNodes);
  if (draft.distributed !== "single") {
    if (max === null || max < 1) wrong.max_nodes = "Enter a whole number, 1 or more.";
    if (draft.distributed === "elastic") {
      if (min === null || min < 1) wrong.min_nodes = "Enter a whole number, 1 or more.";
      else if (!wrong.max_nodes && max !== null && min > max)
        wrong.min_nodes = `Must not exceed the maximum of ${max}.`;
    }
  }
  if ((readCount(draft.numThreads) ?? 0) < 1) wrong.num_threads = "Enter a whole number, 1 or more.";
  if (readCount(draft.maxRetries) === null) wrong.max_retries = "Enter a whole number, 0 or more.";
  if (draft.seed.trim() && readCount(draft.seed) === null) wrong.seed = "Enter a whole number, or leave empty.";
  if (draft.maxRunMinutes.trim() && !(Number(draft.maxRunMinutes) > 0)) {
    wrong.max_run_s = "Enter a number of minutes, or leave empty.";
  }
  for (const [field, pairs] of [
    ["parameters", draft.parameters],
    ["environment", draft.environment],
  ] as const) {
    const names = pairs.map((pair) => pair.name.trim()).filter(Boolean);
    const twice = names.find((name, place) => names.indexOf(name) !== place);
    if (twice) wrong[field] = `${twice} appears twice.`;
    if (pairs.some((pair) => !pair.name.trim() && pair.value.trim())) wrong[field] = "Enter a name for each value.";
  }
  return wrong;
}

/** Return the whole number in a field, or null if it is none. */
export function readCount(text: string): number | null {
  return /^\s*\d{1,15}\s*$/.test(text) ? Number(text) : null;
}

/** Return parameters as the server takes them. */
export function parametersOf(pairs: readonly Pair[]): Record<string, ParameterValue> {
  return Object.fromEntries(
    pairs
      .filter((pair) => pair.name.trim())
      .map((pair) => [pair.name.trim().replace(/^--/, ""), readValue(pair.value)]),
  );
}

/** Return the bounds of a job, as a submission says them. */
export function boundsOfDraft(draft: DefinitionDraft): { min: number; max: number; isElastic: boolean } {
  if (draft.distributed === "single") return { min: 1, max: 1, isElastic: false };
  const max = Math.max(1, readCount(draft.maxNodes) ?? 1);
  if (draft.distributed === "static") return { min: max, max, isElastic: false };
  return { min: Math.max(1, readCount(draft.minNodes) ?? 1), max, isElastic: true };
}

/** Return the body of a request that makes the definition. */
export function bodyOf(draft: DefinitionDraft): DefinitionBody {
  const { min, max } = boundsOfDraft(draft);
  const code =
    draft.codeFrom === "upload" ? (draft.packed?.sha256 ?? null) : draft.codeFrom === "kept" ? draft.keptCode : null;
  return {
    name: draft.name.trim(),
    description: draft.description.trim(),
    framework: draft.framework || null,
    command: draft.command.trim(),
    code,
    directory: draft.codeFrom === "directory" ? draft.directory.trim() : null,
    distributed: draft.distributed,
    min_nodes: min,
    max_nodes: max,
    num_threads: readCount(draft.numThreads) ?? 1,
    cpu_capability: draft.cpuCapability || null,
    python: draft.python.trim() || null,
    parameters: parametersOf(draft.parameters),
    environment: Object.fromEntries(
      draft.environment.filter((pair) => pair.name.trim()).map((pair) => [pair.name.trim(), pair.value]),
    ),
    seed: draft.seed.trim() ? readCount(draft.seed) : null,
    checkpoint_every: draft.checkpointEvery.trim() || null,
    max_retries: readCount(draft.maxRetries) ?? 0,
    max_run_s: draft.maxRunMinutes.trim() ? Number(draft.maxRunMinutes) * 60 : null,
    // JavaScript has 1.0 as 1: the server takes the numbers of the definition itself.
    clone_of: draft.cloneOf,
  };
}
