/** Dialogs that change jobs: stop, priority, queue, labels and notes, resize, clone. */

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { makeKey } from "@/api/client";
import { useAsk } from "@/api/queries";
import type { Job, Spec } from "@/api/types";
import { countOf } from "@/format/numbers";
import { type ParameterValue, splitCommand } from "@/pages/submit/command";
import { type Pair, parametersOf } from "@/pages/submit/draft";
import { PairsField } from "@/pages/submit/pairs-field";
import { type Planned, usePlans } from "@/pages/submit/plan";
import { PlanView } from "@/pages/submit/plan-view";
import { Dialog } from "@/parts/dialog";
import { AreaField, CheckField, type Choice, SelectField, TextField } from "@/parts/field";
import { ENDED } from "@/parts/stage";
import { Note } from "@/parts/states";
import { useToasts } from "@/parts/toast";
import { go } from "@/router/router";
import { cloneJob, forgetJobs, type JobPatch, patchJob, resizeJob, stopJob, useDoToJobs } from "./changes";
import { joinCommand } from "./command";
import { isOfPlatform } from "./facts";
import "./jobs.css";
import "@/pages/submit/submit.css";

const MAX_PRIORITY = 10_000;

interface OfJobs {
  jobs: readonly Job[];
  onClose: () => void;
}

function nameThem(jobs: readonly Job[]): string {
  return jobs.length === 1 ? (jobs[0]?.name ?? "") : countOf(jobs.length, "job");
}

/** Ask before jobs are stopped: there is no way back. */
export function StopDialog({ jobs, onClose }: OfJobs) {
  const doTo = useDoToJobs();
  const [isNow, setNow] = useState(jobs.every((job) => job.stage === "stopping"));
  return (
    <Dialog
      title={`Stop ${nameThem(jobs)}?`}
      action="Stop"
      isBad
      onClose={onClose}
      onDo={() => doTo(jobs, "Stopping", (job) => stopJob(job, isNow))}
    >
      <p>
        {jobs.length === 1 ? "The job saves a checkpoint and ends." : "Each job saves a checkpoint and ends."} A stopped
        job cannot be resumed; a clone of it starts from scratch. To continue later, pause it instead.
      </p>
      <CheckField label="Stop now, without a checkpoint" isOn={isNow} onValue={setNow} />
    </Dialog>
  );
}

/** Ask for a priority. */
export function PriorityDialog({ jobs, onClose }: OfJobs) {
  const doTo = useDoToJobs();
  const [text, setText] = useState(String(jobs[0]?.priority ?? ""));
  const priority = Number(text);
  const isGood = /^\d+$/.test(text.trim()) && priority >= 1 && priority <= MAX_PRIORITY;
  return (
    <Dialog
      title={`Priority of ${nameThem(jobs)}`}
      action="Save"
      isBlocked={!isGood}
      onClose={onClose}
      onDo={() => doTo(jobs, "Changed the priority of", (job) => patchJob(job, { priority }))}
    >
      <TextField
        label="Priority"
        type="number"
        min={1}
        max={MAX_PRIORITY}
        data-autofocus=""
        value={text}
        onValue={setText}
        wrong={isGood ? null : "Enter a whole number from 1 to 10000."}
        hint="1 to 10000; a higher priority gets a larger share."
      />
    </Dialog>
  );
}

const MAX_NOTES = 1000;

/** Ask for another queue, labels and notes; a job that has ended stays in its queue. */
export function BelongsDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const toasts = useToasts();
  const known = useQueryClient();
  // What was there when it was opened: what others change meanwhile stays as they want it.
  const [before] = useState(() => ({ ...job, labels: labelsOfUsers(job) }));
  const [queue, setQueue] = useState(before.queue);
  const [pairs, setPairs] = useState(() => listPairs(before.labels));
  const [notes, setNotes] = useState(before.notes);
  const queues = useQueueChoices(before.queue);
  const isOver = ENDED.has(job.stage);
  const wrong = checkLabels(pairs);
  const patch = { ...findPatch(before, queue, pairs), ...(notes === before.notes ? {} : { notes }) };
  return (
    <Dialog
      title={isOver ? `Notes and labels of ${job.name}` : `Notes, labels and queue of ${job.name}`}
      action="Save"
      isBlocked={wrong !== null || Object.keys(patch).length === 0}
      onClose={onClose}
      onDo={async () => {
        await patchJob(job.id, patch);
        forgetJobs(known);
        toasts.tell(`Changed ${job.name}`);
      }}
    >
      <AreaField
        label="Notes"
        data-autofocus=""
        rows={3}
        maxLength={MAX_NOTES}
        hint="All who can see the job can read them."
        value={notes}
        onValue={setNotes}
      />
      {!isOver && (
        <SelectField
          label="Queue"
          choices={queues}
          hint="Jobs of a queue share its part of the pool."
          value={queue}
          onValue={setQueue}
        />
      )}
      <PairsField
        label="Labels"
        hint="On the page of the job, click a label to show all jobs with it."
        pairs={pairs}
        onPairs={setPairs}
        nameHint="team"
        valueHint="vision"
        wrong={wrong ?? undefined}
      />
    </Dialog>
  );
}

/** Return the labels that users gave: those of Legato's interface for WMLA are not theirs to change. */
function labelsOfUsers(job: Pick<Job, "labels">): Job["labels"] {
  return Object.fromEntries(Object.entries(job.labels).filter(([name]) => !isOfPlatform(name)));
}

/** Return the queues that there are, first the one that a job is in. */
function useQueueChoices(queue: string): Choice[] {
  const queues = useAsk(["queues"], "/queues");
  const names = [...new Set([queue, ...(queues.data?.items ?? []).map((one) => one.name)])];
  return names.map((name) => ({ value: name, label: name }));
}

function checkLabels(pairs: readonly Pair[]): string | null {
  const names = pairs.map((pair) => pair.name.trim());
  const twice = names.find((name, place) => name && names.indexOf(name) !== place);
  if (twice) return `${twice} appears twice.`;
  return pairs.some((pair) => !pair.name.trim() && pair.value.trim()) ? "Enter a name for each value." : null;
}

/** Return what differs, as the server takes it: labels that are gone are null. */
export function findPatch(job: Pick<Job, "queue" | "labels">, queue: string, pairs: readonly Pair[]): JobPatch {
  const wanted = new Map(pairs.filter((pair) => pair.name.trim()).map((pair) => [pair.name.trim(), pair.value.trim()]));
  const gone = Object.keys(job.labels).filter((name) => !wanted.has(name));
  const labels = Object.fromEntries<string | null>([
    ...[...wanted].filter(([name, value]) => job.labels[name] !== value),
    ...gone.map((name) => [name, null] as const),
  ]);
  return { ...(queue === job.queue ? {} : { queue }), ...(Object.keys(labels).length ? { labels } : {}) };
}

/** Ask for new bounds. */
export function ResizeDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const doTo = useDoToJobs();
  const [least, setLeast] = useState(String(job.min_workers));
  const [most, setMost] = useState(String(job.max_workers));
  const [min, max] = [Number(job.is_elastic ? least : most), Number(most)];
  const isGood = Number.isInteger(min) && Number.isInteger(max) && min >= 1 && max >= min;
  const wrong = isGood ? null : "The minimum must be at least 1 and no larger than the maximum.";
  return (
    <Dialog
      title={`Resize ${job.name}`}
      action="Resize"
      isBlocked={!isGood}
      onClose={onClose}
      onDo={() => doTo([job], "Resizing", (id) => resizeJob(id, min, max))}
    >
      <p className="soft">
        Currently {countOf(job.num_slots, "slot")}. More slots make the job faster; the results stay the same.
      </p>
      {job.is_elastic && (
        <TextField
          label="Minimum slots"
          type="number"
          min={1}
          value={least}
          onValue={setLeast}
          hint="The job waits in the queue until this many slots are free."
        />
      )}
      <TextField
        label={job.is_elastic ? "Maximum slots" : "Slots"}
        type="number"
        min={1}
        value={most}
        onValue={setMost}
        wrong={wrong}
      />
    </Dialog>
  );
}

/** Start a clone of a job. Only changed fields are sent. */
export function CloneDialog({ job, spec, onClose }: { job: Job; spec: Spec; onClose: () => void }) {
  const toasts = useToasts();
  const queries = useQueryClient();
  const [key] = useState(makeKey);
  const before = {
    name: job.name,
    command: joinCommand(spec.program),
    min_workers: String(job.min_workers),
    max_workers: String(job.max_workers),
    priority: String(job.priority),
    queue: job.queue,
    seed: spec.seed === null ? "" : String(spec.seed),
  };
  const [values, setValues] = useState(before);
  const [pairs, setPairs] = useState(() => listPairs(spec.parameters));
  const set = (name: keyof typeof before) => (value: string) => setValues((old) => ({ ...old, [name]: value }));
  const queues = useQueueChoices(job.queue);
  const command = splitCommand(values.command);
  const planned = planOfClone(job, values);
  const clone = async () => {
    const changes: Record<string, unknown> = {};
    for (const name of ["name", "queue"] as const)
      if (values[name] !== before[name]) changes[name] = values[name].trim();
    for (const name of ["min_workers", "max_workers", "priority", "seed"] as const) {
      if (values[name] !== before[name]) changes[name] = values[name] === "" ? null : Number(values[name]);
    }
    if (values.command !== before.command) changes.program = command.words;
    const parameters = parametersOf(pairs);
    if (JSON.stringify(parameters) !== JSON.stringify(spec.parameters)) changes.parameters = parameters;
    const made = await cloneJob(job.id, changes, key);
    forgetJobs(queries);
    toasts.tell(`Started ${made.name}`);
    go(`/jobs/${made.id}`);
  };
  return (
    <Dialog
      title={`Clone ${job.name}`}
      action="Start"
      isBlocked={!command.words?.length || !values.name.trim()}
      onClose={onClose}
      onDo={clone}
    >
      <p className="soft">Starts a new job from scratch with the same code. You can change any field.</p>
      <TextField label="Name" value={values.name} onValue={set("name")} />
      <AreaField
        label="Command"
        rows={3}
        className="input mono"
        spellCheck={false}
        value={values.command}
        onValue={set("command")}
        wrong={command.wrong}
        hint="Script and arguments. Shell features such as pipes or $VARS do not work here."
      />
      <div className="clone-numbers">
        <TextField
          label="Minimum slots"
          type="number"
          min={1}
          value={values.min_workers}
          onValue={set("min_workers")}
        />
        <TextField
          label="Maximum slots"
          type="number"
          min={1}
          value={values.max_workers}
          onValue={set("max_workers")}
        />
        <TextField
          label="Priority"
          type="number"
          min={1}
          max={MAX_PRIORITY}
          value={values.priority}
          onValue={set("priority")}
        />
        <SelectField label="Queue" choices={queues} value={values.queue} onValue={set("queue")} />
        <TextField
          label="Seed"
          type="number"
          min={0}
          placeholder="from program"
          title="If empty, the program sets the seed"
          value={values.seed}
          onValue={set("seed")}
        />
      </div>
      <PairsField
        label="Parameters"
        hint="Appended to the command as --name value."
        pairs={pairs}
        onPairs={setPairs}
        nameHint="learning_rate"
        valueHint="0.01"
      />
      {planned && <PlanOf planned={planned} />}
      {job.stage === "failed" && <Note tone="warn">This job failed: {job.reason}</Note>}
    </Dialog>
  );
}

/**
 * Return what is planned for a clone with these values; null as long as they are no numbers that can be. How the clone
 * is called is no part of it: another name is no other plan.
 */
export function planOfClone(
  job: Pick<Job, "id" | "name" | "is_elastic">,
  values: Readonly<Record<"min_workers" | "max_workers" | "priority" | "queue", string>>,
): Planned | null {
  const [least, max, priority] = [Number(values.min_workers), Number(values.max_workers), Number(values.priority)];
  const min = job.is_elastic ? least : max;
  const isGood = [min, max, priority].every((one) => Number.isInteger(one) && one >= 1) && min <= max;
  if (!isGood || priority > MAX_PRIORITY) return null;
  return { key: job.id, name: job.name, queue: values.queue, min, max, isElastic: job.is_elastic, priority };
}

function PlanOf({ planned }: { planned: Planned }) {
  const [plan] = usePlans([planned]);
  return plan?.data ? <PlanView plan={plan.data} min={planned.min} max={planned.max} /> : null;
}

function listPairs(parameters: Readonly<Record<string, ParameterValue>>): Pair[] {
  return Object.entries(parameters).map(([name, value]) => ({ name, value: String(value) }));
}
