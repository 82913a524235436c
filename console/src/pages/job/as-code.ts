/** The same job elsewhere: as a command line, as a request, and in Python. */

import type { Job, Spec } from "@/api/types";
import { joinCommand } from "@/jobs/command";
import { type ParameterValue, quoteWord, writeParameters } from "@/pages/submit/command";

/** Return the fields of a submission that differ from what holds without them. */
export function makeSubmission(job: Job, spec: Spec): Record<string, unknown> {
  const body: Record<string, unknown> = { name: job.name, program: spec.program };
  const add = (name: string, value: unknown, usual: unknown) => {
    if (value !== null && value !== undefined && value !== usual) body[name] = value;
  };
  add("code", job.code, null);
  add("directory", spec.directory, null);
  add("max_workers", job.max_workers, 1);
  if (job.is_elastic) add("min_workers", job.min_workers, 1);
  add("is_elastic", job.is_elastic, true);
  add("queue", job.queue, "default");
  add("priority", job.priority, null);
  add("gpus_per_worker", job.gpus_per_worker, 1);
  add("gpu_type", spec.gpu_type, null);
  add("max_retries", job.max_retries, 0);
  add("max_run_s", spec.max_run_s, null);
  add("data", spec.data, null);
  add("seed", spec.seed, null);
  add("num_threads", spec.num_threads, 1);
  add("cpu_capability", spec.cpu_capability, null);
  add("python", spec.python, null);
  add("num_micro_batches", spec.num_micro_batches, null);
  add("checkpoint_every", spec.checkpoint_every, null);
  add("keep", spec.keep, 3);
  add("heartbeat_limit_s", spec.heartbeat_limit_s, 5);
  add("collective_limit_s", spec.collective_limit_s, 1800);
  add("memory_bytes", spec.memory_bytes, null);
  add("num_cpus", spec.num_cpus, null);
  add("must_limit", spec.must_limit, true);
  add("framework", spec.framework, "legato");
  if (Object.keys(spec.parameters).length) body.parameters = spec.parameters;
  if (Object.keys(spec.node_labels).length) body.node_labels = spec.node_labels;
  if (Object.keys(job.labels).length) body.labels = job.labels;
  if (Object.keys(spec.environment).length) body.environment = spec.environment;
  return body;
}

const SHELL_OPTIONS: readonly (readonly [string, string])[] = [
  ["queue", "--queue"],
  ["priority", "--priority"],
  ["data", "--data"],
  ["seed", "--seed"],
  ["directory", "--directory"],
  ["gpus_per_worker", "--gpus-per-worker"],
  ["gpu_type", "--gpu-type"],
  ["max_retries", "--retries"],
  ["num_threads", "--threads"],
  ["cpu_capability", "--cpu-capability"],
  ["python", "--python"],
  ["num_micro_batches", "--micro-batches"],
  ["checkpoint_every", "--checkpoint-every"],
  ["keep", "--keep"],
  ["heartbeat_limit_s", "--heartbeat-limit"],
  ["collective_limit_s", "--collective-limit"],
  ["memory_bytes", "--memory"],
  ["num_cpus", "--cpus"],
];

/** Return the command that submits it from the folder with its code, and the one that clones it. */
export function writeShell(job: Job, spec: Spec): string {
  const body = makeSubmission(job, spec);
  const words = ["legato", "submit", "--name", quoteWord(job.name)];
  words.push("--workers", job.is_elastic ? `${job.min_workers}..${job.max_workers}` : `${job.max_workers}`);
  if (!job.is_elastic) words.push("--static");
  for (const [field, option] of SHELL_OPTIONS) if (field in body) words.push(option, quoteWord(String(body[field])));
  if (spec.max_run_s !== null) words.push("--max-time", `${spec.max_run_s}s`);
  for (const [name, value] of Object.entries(spec.node_labels))
    words.push("--node-label", quoteWord(`${name}=${value}`));
  for (const [name, value] of Object.entries(job.labels)) words.push("--label", quoteWord(`${name}=${value}`));
  for (const [name, value] of Object.entries(spec.environment))
    words.push("--env", quoteWord(`${name}=${value ?? ""}`));
  const isScript = spec.framework === "legato";
  if (!isScript) words.push("--framework", quoteWord(spec.framework));
  const { read, written } = partParameters(spec.parameters);
  for (const [name, value] of Object.entries(read)) words.push("--parameter", quoteWord(`${name}=${value}`));
  const [script = "", ...given] = [...spec.program, ...writeParameters(written)];
  // Words of a framework stand as they are; of a script "--" says that what follows is its own.
  const program = [quoteWord(script), ...(isScript && given.length ? ["--"] : []), joinCommand(given)].join(" ").trim();
  return [
    "# In the folder with the code:",
    `${words.join(" ")} ${program}`,
    "",
    "# Or clone the job:",
    `legato clone ${job.id}`,
  ].join("\n");
}

type Parameters = Record<string, ParameterValue>;

/** Part parameters into those that the command reads as they are, and texts that it would take for a number or for yes or no. */
function partParameters(parameters: Parameters): { read: Parameters; written: Parameters } {
  const read: Parameters = {};
  const written: Parameters = {};
  for (const [name, value] of Object.entries(parameters)) {
    const isMisread = typeof value === "string" && (value === "true" || value === "false" || /^[-+.\d]/.test(value));
    (isMisread ? written : read)[name] = value;
  }
  return { read, written };
}

/** Return the request, for curl. */
export function writeRest(job: Job, spec: Spec, origin: string): string {
  const body = JSON.stringify(makeSubmission(job, spec), null, 2);
  return [
    `curl --fail-with-body ${quoteWord(`${origin}/api/v1/jobs`)} \\`,
    `  --header "Authorization: Bearer $LEGATO_TOKEN" \\`,
    `  --header 'Content-Type: application/json' \\`,
    `  --data ${quoteWord(body)}`,
  ].join("\n");
}

/** Return the Python that submits it. */
export function writePython(job: Job, spec: Spec, origin: string): string {
  const { program: _, ...fields } = makeSubmission(job, spec);
  const words = spec.program.map(writeValue).join(", ");
  const lines = Object.entries(fields).map(([name, value]) => `    ${name}=${writeValue(value)},`);
  return [
    "import legato",
    "",
    `client = legato.Client(${writeValue(origin)})`,
    "job = client.submit(",
    `    ${words},`,
    ...lines,
    ")",
    "job.wait()",
    "print(job.stage, job.metrics())",
  ].join("\n");
}

/** Return a value as Python writes it. */
export function writeValue(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(writeValue).join(", ")}]`;
  if (typeof value === "object") {
    const pairs = Object.entries(value).map(([name, each]) => `${writeValue(name)}: ${writeValue(each)}`);
    return `{${pairs.join(", ")}}`;
  }
  // JSON's text is Python's too.
  return JSON.stringify(value);
}
