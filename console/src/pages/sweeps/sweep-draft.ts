/** A sweep as it is being written: fields as they stand in the form, and the body that is made of them. */

import type { components } from "@/api/schema";
import type { Sweep, Trial } from "@/api/types";
import type { Definition, DefinitionBody, FieldErrors } from "@/pages/projects/project-data";
import { type ParameterValue, quoteWord, readValue, splitCommand } from "@/pages/submit/command";
import { boundsOfDraft, draftOf, type Pair, readCount } from "@/pages/submit/draft";

type Schemas = components["schemas"];
export type SweepBody = Schemas["SweepBody"];
export type Tunable = Schemas["TunableBody"];

export interface SweepDraft {
  name: string;
  metric: string;
  direction: "minimize" | "maximize";
  search: "random" | "grid" | "tpe" | "list";
  parameters: readonly Pair[];
  numTrials: string;
  parallel: string;
  maxSlots: string;
  pruning: "" | "halving" | "hyperband";
  maxResource: string;
  data: string;
}

export const EMPTY_SWEEP: SweepDraft = {
  name: "",
  metric: "step_loss",
  direction: "minimize",
  search: "random",
  parameters: [],
  numTrials: "12",
  parallel: "4",
  maxSlots: "",
  pruning: "",
  maxResource: "",
  data: "",
};

const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;

/** Return a number as people write it; NaN: it is none, or too large. */
function readNumber(text: string): number {
  const number = NUMBER.test(text) ? Number(text) : Number.NaN;
  return Number.isFinite(number) ? number : Number.NaN;
}

/** Return the values or the range in a field, or why it has none. */
export function readTunable(text: string): { tunable: Tunable; wrong: null } | { tunable: null; wrong: string } {
  const refuse = (wrong: string) => ({ tunable: null, wrong });
  const [, range = "", rest = ""] = /^(.*?)(\s(?:log|step)\b.*)?$/s.exec(text.trim()) ?? [];
  const ends = range.split("..").map((end) => end.trim());
  const [, from = "", to = ""] = /^(\S+)\s+(?:to|until|-|–)\s+(\S+)$/.exec(text.trim()) ?? [];
  if (NUMBER.test(from) && NUMBER.test(to)) return refuse(`Write a range with two points: ${from}..${to}.`);
  if (ends.length === 1) {
    const values = text.split(",").map((value) => readValue(value.trim()));
    if (values.includes("")) return refuse("Enter values, such as sgd, adam, or a range, such as 0.001..0.1 log.");
    return { tunable: { values, log: false, is_float: false }, wrong: null };
  }
  const [low, high] = ends.map(readNumber);
  if (ends.length !== 2 || low === undefined || high === undefined || !(low < high)) {
    return refuse("A range is two numbers, the smaller one first, such as 0.001..0.1.");
  }
  const said = /^(?:(log)|step\s+(\S+))?$/.exec(rest.trim());
  const step = said?.[2] === undefined ? null : readNumber(said[2]);
  if (!said || (step !== null && !(step > 0))) return refuse("After a range, write log or step 8, or nothing.");
  // JSON has 1.0 as 1, and the server tries only whole numbers between two of them.
  const isFloat = [...ends, said[2] ?? ""].some((number) => /[.e]/i.test(number));
  return { tunable: { low, high, step, log: said[1] === "log", is_float: isFloat }, wrong: null };
}

function readTunables({ parameters: pairs, search }: SweepDraft): {
  tunables: Map<string, Tunable>;
  wrong: string | null;
} {
  const isList = search === "list"; // its points are those of the sweep that is cloned
  // A name may be that of something that every object has.
  const tunables = new Map<string, Tunable>();
  for (const pair of pairs) {
    const name = pair.name.trim().replace(/^--/, "");
    if (!name) return { tunables, wrong: "Enter a name for each parameter." };
    if (tunables.has(name)) return { tunables, wrong: `${name} appears twice.` };
    const read = readTunable(pair.value);
    if (read.wrong !== null) return { tunables, wrong: `${name}: ${read.wrong}` };
    tunables.set(name, read.tunable);
  }
  const wrong = pairs.length === 0 && !isList ? "Enter at least one parameter with its values or its range." : null;
  return { tunables, wrong };
}

/** Whether the search says how many trials there are. */
export function endsItself({ search }: SweepDraft): boolean {
  return search === "grid" || search === "list";
}

/** Return what can be seen to be wrong without asking the server. */
export function checkSweep(draft: SweepDraft): FieldErrors {
  const wrong: Record<string, string> = {};
  if (!/^[A-Za-z0-9][\w.-]*$/.test(draft.name.trim())) {
    wrong.name = "Use letters, digits, '.', '_' and '-', and begin with a letter or digit.";
  }
  if (!draft.metric.trim()) wrong.metric = "Enter the metric, as the program logs it.";
  const read = readTunables(draft);
  if (read.wrong !== null) wrong.parameters = read.wrong;
  const count = (field: string, text: string) => {
    if (!(Number(readCount(text)) >= 1)) wrong[field] = "Enter a whole number, 1 or more.";
  };
  if (!endsItself(draft)) count("num_trials", draft.numTrials);
  count("parallel", draft.parallel);
  if (draft.maxSlots.trim()) count("max_slots", draft.maxSlots);
  if (draft.pruning && (draft.pruning === "hyperband" || draft.maxResource.trim())) {
    count("pruning", draft.maxResource);
  }
  return wrong;
}

/** Return the body of a request that starts the sweep with a definition; what is searched replaces its parameters. */
export function bodyOfSweep(draft: SweepDraft, definition: Definition, queue: string): SweepBody {
  const { tunables } = readTunables(draft);
  const fixed = Object.entries(definition.parameters).filter(([name]) => !tunables.has(name));
  return {
    ...{ ...planOf(draft, tunables), points: [], max_failures: 3, seed: 0 },
    pruning: draft.pruning ? { unit: "epoch", min_resource: 1, factor: 3, ...pruningOf(draft, draft.pruning) } : null,
    job: { ...jobOf(definition, queue, draft.data), parameters: Object.fromEntries(fixed) },
  };
}

/** Return the body of a request that starts a sweep again, with what was changed in its draft. */
export function bodyOfClone(draft: SweepDraft, sweep: Sweep): SweepBody {
  const { tunables } = readTunables(draft);
  for (const { name, value } of writeTunables(sweep)) {
    // The text of a value may be read as another one: '1' as 1.
    const [old, pair] = [sweep.parameters[name], draft.parameters.find((one) => one.name.trim() === name)];
    if (old && pair?.value === value) tunables.set(name, old);
  }
  const { points, max_failures, seed, max_run_s, pruning } = sweep;
  const job = sweep.job as unknown as SweepBody["job"];
  const fixed = Object.entries(job.parameters ?? {}).filter(([name]) => !tunables.has(name));
  return {
    // JavaScript has 1.0 as 1: the server takes the numbers of the sweep itself.
    clone_of: sweep.id,
    ...planOf(draft, tunables),
    points: draft.search === "list" ? (points ?? []) : [],
    ...{ max_failures, seed, max_run_s },
    pruning: draft.pruning
      ? {
          ...{ unit: "epoch", min_resource: 1, factor: 3, ...pruning, ...pruningOf(draft, draft.pruning) },
          // Only Hyperband tells the program its resource.
          parameter: draft.pruning === "hyperband" ? (pruning?.parameter ?? null) : null,
        }
      : null,
    job: {
      ...job,
      ...{ data: draft.data.trim() || null, parameters: Object.fromEntries(fixed) },
      environment: Object.fromEntries(Object.entries(job.environment ?? {}).filter(([, value]) => value !== null)),
    },
  };
}

function planOf(draft: SweepDraft, tunables: Map<string, Tunable>) {
  return {
    name: draft.name.trim(),
    metric: { name: draft.metric.trim(), direction: draft.direction },
    parameters: Object.fromEntries(tunables),
    search: draft.search,
    num_trials: endsItself(draft) ? null : readCount(draft.numTrials),
    parallel: readCount(draft.parallel) ?? 4,
    max_slots: draft.maxSlots.trim() ? readCount(draft.maxSlots) : null,
  };
}

function pruningOf({ maxResource }: SweepDraft, method: "halving" | "hyperband") {
  return { method, max_resource: readCount(maxResource) };
}

/** Return the draft that would start a sweep again. */
export function draftOfSweep(sweep: Sweep): SweepDraft {
  const { metric, search, pruning } = sweep;
  const data = (sweep.job as { data?: string | null }).data;
  return {
    ...{ name: sweep.name, metric: metric.name, direction: metric.direction, search, parameters: writeTunables(sweep) },
    ...{ numTrials: String(sweep.num_trials), parallel: String(sweep.parallel) },
    maxSlots: sweep.max_slots === null ? "" : String(sweep.max_slots),
    pruning: pruning?.method ?? "",
    maxResource: String(pruning?.max_resource ?? ""),
    data: data ?? "",
  };
}

/** Return the parameters of a sweep as they stand in its fields. */
function writeTunables(sweep: Sweep): Pair[] {
  return Object.entries(sweep.parameters).map(([name, tunable]) => ({ name, value: writeTunable(tunable) }));
}

function writeTunable({ values, low, high, step, log, is_float }: Sweep["parameters"][string]): string {
  if (values) return values.join(", ");
  const write = (bound: number | null) =>
    is_float && Number.isSafeInteger(bound) ? `${bound}.0` : String(bound).replace("e+", "e");
  const rest = step === null ? "" : ` step ${write(step)}`;
  return `${write(low)}..${write(high)}${log ? " log" : rest}`;
}

/** Return the fields of a trial's job without its parameters. */
function jobOf(definition: Definition, queue: string, data: string): SweepBody["job"] {
  const { min, max, isElastic } = boundsOfDraft(draftOf(definition));
  const { framework, code, directory, num_threads, cpu_capability, python } = definition;
  const { seed, checkpoint_every, max_retries, max_run_s } = definition;
  return {
    program: splitCommand(definition.command).words ?? [],
    ...{ framework, code, directory, num_threads, cpu_capability, python },
    ...{ seed, checkpoint_every, max_retries, max_run_s, queue },
    ...{ min_workers: min, max_workers: max, is_elastic: isElastic, data: data.trim() || null },
    environment: Object.fromEntries(
      Object.entries(definition.environment).filter((entry): entry is [string, string] => entry[1] !== null),
    ),
  };
}

/** Return the environment variables whose values only others see: trials run without them. */
export function listHidden({ environment }: { environment?: Record<string, string | null> | null }): string[] {
  return Object.entries(environment ?? {}).flatMap(([name, value]) => (value === null ? [name] : []));
}

/** The fields of the jobs of a sweep that a training definition can have. */
interface TrialJob {
  program: string[];
  code?: string | null;
  directory?: string | null;
  framework?: string | null;
  min_workers?: number | null;
  max_workers?: number | null;
  is_elastic?: boolean | null;
  num_threads?: number | null;
  cpu_capability?: string | null;
  python?: string | null;
  seed?: number | null;
  checkpoint_every?: string | null;
  max_retries?: number | null;
  max_run_s?: number | null;
  parameters?: Record<string, ParameterValue> | null;
}

const SAVED = new Set([
  ...["program", "code", "directory", "framework", "min_workers", "max_workers", "is_elastic", "num_threads"],
  ...["cpu_capability", "python", "seed", "checkpoint_every", "max_retries", "max_run_s", "parameters"],
]);
const LEFT_OUT = new Set(["name", "queue", "priority", "labels", "environment", "data"]);

/** Return the fields of the jobs of a sweep that a definition would not have. */
export function listUnsaved(job: Readonly<Record<string, unknown>>): string[] {
  const isSet = (value: unknown) =>
    value !== null && value !== undefined && (typeof value !== "object" || Object.keys(value).length > 0);
  return Object.entries(job)
    .filter(([field, value]) => !SAVED.has(field) && isSet(value))
    .filter(([field, value]) => !(field === "gpus_per_worker" && value === 1) && !LEFT_OUT.has(field))
    .map(([field]) => field);
}

/** Return the body of a request that makes a definition of a trial. */
export function bodyOfTrial(
  name: string,
  description: string,
  { id, job: fields }: { id: string; job: Readonly<Record<string, unknown>> },
  { parameters, number }: Pick<Trial, "parameters" | "number">,
): DefinitionBody {
  const job = fields as unknown as TrialJob;
  const max = job.max_workers ?? 1;
  const distributed = max === 1 ? "single" : (job.is_elastic ?? true) ? "elastic" : "static";
  return {
    name,
    description,
    command: job.program.map(quoteWord).join(" "),
    framework: job.framework ?? "legato",
    code: job.code ?? null,
    directory: job.directory ?? null,
    distributed,
    min_nodes: distributed === "elastic" ? (job.min_workers ?? 1) : max,
    max_nodes: max,
    num_threads: job.num_threads ?? 1,
    cpu_capability: job.cpu_capability ?? null,
    python: job.python ?? null,
    parameters: { ...job.parameters, ...parameters },
    environment: {},
    seed: job.seed ?? null,
    checkpoint_every: job.checkpoint_every ?? null,
    max_retries: job.max_retries ?? 0,
    max_run_s: job.max_run_s ?? null,
    // JavaScript has 1.0 as 1: the server takes the numbers of the trial itself.
    clone_of_trial: { sweep: id, number },
  };
}
