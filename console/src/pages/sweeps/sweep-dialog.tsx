/** The windows that start a sweep: a new one of a training definition, or one like another. */

import { useRef, useState } from "react";
import { ask, makeKey } from "@/api/client";
import { sayProblem } from "@/api/problems";
import type { Sweep } from "@/api/types";
import {
  type FieldErrors,
  fieldErrorsOf,
  mayAdd,
  type Project,
  useDefinitions,
  useOutdate,
  useProjects,
} from "@/pages/projects/project-data";
import { quoteWord } from "@/pages/submit/command";
import { PairsField } from "@/pages/submit/pairs-field";
import { Dialog } from "@/parts/dialog";
import { SelectField, TextField } from "@/parts/field";
import { Note } from "@/parts/states";
import { go } from "@/router/router";
import { useSession } from "@/session/session";
import {
  bodyOfClone,
  bodyOfSweep,
  checkSweep,
  draftOfSweep,
  EMPTY_SWEEP,
  endsItself,
  listHidden,
  type SweepBody,
  type SweepDraft,
} from "./sweep-draft";
import "@/pages/submit/submit.css";

const SEARCHES = [
  { value: "random", label: "random" },
  { value: "tpe", label: "TPE (near the best so far)" },
  { value: "grid", label: "grid (all combinations)" },
];
const LIST = { value: "list", label: "list (the same ones again)" };
const POINT = { grid: "combination", list: "point", random: "", tpe: "" };
const DIRECTIONS = [
  { value: "minimize", label: "minimize" },
  { value: "maximize", label: "maximize" },
];
const PRUNINGS = [
  { value: "", label: "none" },
  { value: "halving", label: "successive halving" },
  { value: "hyperband", label: "Hyperband" },
];

interface Form {
  draft: SweepDraft;
  wrong: FieldErrors;
  set: (change: Partial<SweepDraft>) => void;
  start: (body: SweepBody) => Promise<void>;
}

/** Hold what is typed, and start the sweep that it describes. */
function useForm(first: SweepDraft): Form {
  const [draft, setDraft] = useState(first);
  const [wrong, setWrong] = useState<FieldErrors>({});
  const outdate = useOutdate();
  // If an answer was lost, the same sweep is not started twice.
  const key = useRef(makeKey());
  const set = (change: Partial<SweepDraft>) => {
    key.current = makeKey();
    setDraft((old) => ({ ...old, ...change }));
    setWrong({});
  };
  const start = async (body: SweepBody) => {
    const seen = checkSweep(draft);
    setWrong(seen);
    if (Object.keys(seen).length > 0) throw new Error("Fix the highlighted fields.");
    try {
      const started = await ask("post", "/sweeps", { body, headers: { "Idempotency-Key": key.current } });
      await outdate("sweeps");
      go(`/sweeps/${started.id}`);
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
  };
  return { draft, wrong, set, start };
}

/** The dialog for a sweep of a training definition. */
export function NewSweepDialog({ onClose }: { onClose: () => void }) {
  const form = useForm(EMPTY_SWEEP);
  const [project, setProject] = useState("");
  const [chosen, setChosen] = useState("");
  const session = useSession();
  const all = useProjects();
  const projects = (all.data?.items ?? []).filter((one) => mayAdd(session, one));
  const from: Project | undefined = projects.find((one) => one.id === project) ?? projects[0];
  const asked = useDefinitions(from?.id ?? "");
  const definitions = asked.data?.items ?? [];
  const failure = all.error ?? asked.error;
  const definition = definitions.find((one) => one.id === chosen) ?? definitions[0];
  return (
    <Dialog
      title="New sweep"
      isWide
      action="Start"
      isBlocked={!definition}
      typed={form.draft}
      onDo={async () => {
        if (from && definition) await form.start(bodyOfSweep(form.draft, definition, from.queue));
      }}
      onClose={onClose}
    >
      <div className="definition-pair">
        <SelectField
          label="Project"
          choices={projects.map((one) => ({ value: one.id, label: `${one.name} (${one.owner})` }))}
          value={from?.id ?? ""}
          onValue={(value) => {
            setProject(value);
            form.set({});
          }}
        />
        <SelectField
          label="Training definition"
          choices={definitions.map((one) => ({ value: one.id, label: one.name }))}
          hint={definition && `Runs ${definition.command}, with ${definition.distributed} training.`}
          wrong={form.wrong.job}
          value={definition?.id ?? ""}
          onValue={(value) => {
            setChosen(value);
            form.set({});
          }}
        />
      </div>
      {failure && <Note tone="bad">{sayProblem(failure)}</Note>}
      {!definition && !failure && (from ? asked.data : all.data) && (
        <Note>A sweep runs a training definition of a project. Create one by New experiment, and come back.</Note>
      )}
      <Fields form={form} environment={definition?.environment} />
    </Dialog>
  );
}

type TrialJob = { program: string[]; environment?: Record<string, string | null> | null };

/** The dialog for a sweep like another one: its jobs run what they ran before. */
export function CloneSweepDialog({ sweep, onClose }: { sweep: Sweep; onClose: () => void }) {
  const form = useForm(draftOfSweep(sweep));
  const { program, environment } = sweep.job as unknown as TrialJob;
  return (
    <Dialog
      title={`Clone sweep ${sweep.name}`}
      isWide
      action="Start"
      typed={form.draft}
      onDo={() => form.start(bodyOfClone(form.draft, sweep))}
      onClose={onClose}
    >
      <Note>Its jobs run {program.map(quoteWord).join(" ")}, as before. For another program, start a new sweep.</Note>
      <Fields form={form} environment={environment} hasList={sweep.search === "list"} />
    </Dialog>
  );
}

interface FieldsProps {
  form: Form;
  environment: Record<string, string | null> | null | undefined;
  /** Whether the points of the sweep that is cloned can be searched again. */
  hasList?: boolean;
}

function Fields({ form: { draft, wrong, set }, environment, hasList = false }: FieldsProps) {
  const hidden = listHidden({ environment: environment ?? null });
  return (
    <>
      {hidden.length > 0 && (
        <Note tone="warn">
          Trials run without the environment variables {hidden.join(", ")}, because you do not see their values.
        </Note>
      )}
      <div className="definition-pair">
        <TextField
          label="Name"
          hint={`Its jobs are ${draft.name.trim() || "NAME"}-0, ${draft.name.trim() || "NAME"}-1, …`}
          wrong={wrong.name}
          value={draft.name}
          onValue={(name) => set({ name })}
        />
        <TextField
          label="Data path"
          className="input mono"
          hint="Optional directory with the data, as in an experiment."
          value={draft.data}
          onValue={(data) => set({ data })}
        />
      </div>
      <div className="definition-pair">
        <TextField
          label="Metric"
          className="input mono"
          hint="As the program logs it by run.log; step_loss: the loss of each step."
          wrong={wrong.metric}
          value={draft.metric}
          onValue={(metric) => set({ metric })}
        />
        <SelectField
          label="Direction"
          choices={DIRECTIONS}
          value={draft.direction}
          onValue={(value) => set({ direction: value as SweepDraft["direction"] })}
        />
      </div>
      <PairsField
        label="Search parameters"
        hint="Values: sgd, adam. Ranges: 0.001..0.1 log, 8..64 step 8 (whole numbers), 0.0..1.0 (any numbers). The program gets them as --name value."
        wrong={wrong.parameters}
        pairs={draft.parameters}
        onPairs={(parameters) => set({ parameters })}
        nameHint="lr"
        valueHint="0.001..0.1 log"
      />
      <div className="definition-pair">
        <SelectField
          label="Search"
          choices={hasList ? [...SEARCHES, LIST] : SEARCHES}
          wrong={wrong.search}
          value={draft.search}
          onValue={(value) => set({ search: value as SweepDraft["search"] })}
        />
        <TextField
          label="Trials"
          inputMode="numeric"
          disabled={endsItself(draft)}
          hint={endsItself(draft) ? `A ${draft.search} has one trial for each ${POINT[draft.search]}.` : undefined}
          wrong={wrong.num_trials}
          value={endsItself(draft) ? "" : draft.numTrials}
          onValue={(numTrials) => set({ numTrials })}
        />
      </div>
      <div className="definition-pair">
        <TextField
          label="Trials at once"
          inputMode="numeric"
          wrong={wrong.parallel}
          value={draft.parallel}
          onValue={(parallel) => set({ parallel })}
        />
        <TextField
          label="Maximum slots"
          inputMode="numeric"
          hint="Of all trials together. Empty: no limit."
          wrong={wrong.max_slots}
          value={draft.maxSlots}
          onValue={(maxSlots) => set({ maxSlots })}
        />
      </div>
      <div className="definition-pair">
        <SelectField
          label="Pruning"
          choices={PRUNINGS}
          hint="Stops trials early that are not among the best third."
          value={draft.pruning}
          onValue={(value) => set({ pruning: value as SweepDraft["pruning"] })}
        />
        <TextField
          label="Epochs of a whole trial"
          inputMode="numeric"
          disabled={!draft.pruning}
          hint="Hyperband needs them."
          wrong={wrong.pruning}
          value={draft.maxResource}
          onValue={(maxResource) => set({ maxResource })}
        />
      </div>
    </>
  );
}
