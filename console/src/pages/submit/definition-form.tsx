/** All fields of a training definition: on the left what is run, on the right with how much. */

import { useId } from "react";
import { useAsk } from "@/api/queries";
import { countOf } from "@/format/numbers";
import type { FieldErrors, FrameworkTold } from "@/pages/projects/project-data";
import { AreaField, SelectField, TextField } from "@/parts/field";
import { Segments } from "@/parts/segments";
import { splitCommand, writeParameters } from "./command";
import { type DefinitionDraft, parametersOf } from "./draft";
import { PairsField } from "./pairs-field";
import { PickCode } from "./pick-code";

interface FormProps {
  draft: DefinitionDraft;
  onDraft: (change: Partial<DefinitionDraft>) => void;
  /** Told when files begin to be packed, and when they are. */
  onPacking: (isPacking: boolean) => void;
  wrong: FieldErrors;
  frameworks: readonly FrameworkTold[];
}

const KINDS = [
  { value: "single", label: "Single" },
  { value: "static", label: "Static" },
  { value: "elastic", label: "Elastic" },
] as const;
const CPU_CAPABILITIES = [
  { value: "", label: "best of each machine" },
  { value: "default", label: "default (no AVX2)" },
  { value: "avx2", label: "avx2" },
  { value: "avx512", label: "avx512" },
];
const RECOGNISED =
  "Programs that import fabric_model run as FabricModel programs, those of ElasticDL as such, all others as Legato programs.";
const KIND_HINTS = {
  single: "One node.",
  static: "A fixed number of nodes; the job waits until they are free.",
  elastic: "Grows and shrinks between the minimum and maximum while it trains. The result stays the same.",
};

/** The form's fields. */
export function DefinitionForm({ draft, onDraft, onPacking, wrong, frameworks }: FormProps) {
  const framework = frameworks.find((one) => one.name === draft.framework);
  const scripts = (draft.codeFrom === "upload" && draft.packed?.names?.filter((name) => /\.(py|sh)$/.test(name))) || [];
  const list = useId();
  return (
    <div className="definition">
      <div className="definition-column">
        <TextField
          label="Name"
          required
          maxLength={100}
          wrong={wrong.name}
          value={draft.name}
          onValue={(name) => onDraft({ name })}
        />
        <AreaField
          label="Description"
          rows={2}
          wrong={wrong.description}
          value={draft.description}
          onValue={(description) => onDraft({ description })}
        />
        <PickCode
          draft={draft}
          onDraft={onDraft}
          onPacking={onPacking}
          wrongCode={wrong.code}
          wrongDirectory={wrong.directory}
        />
        <SelectField
          label="Framework"
          choices={[
            { value: "", label: "Recognise from the program" },
            ...frameworks.map((one) => ({ value: one.name, label: one.title })),
          ]}
          hint={framework?.description ?? RECOGNISED}
          wrong={wrong.framework}
          value={draft.framework}
          onValue={(name) => {
            const kinds = frameworks.find((one) => one.name === name)?.distributed ?? KINDS.map((kind) => kind.value);
            const distributed = kinds.includes(draft.distributed) ? draft.distributed : (kinds.at(-1) ?? "single");
            onDraft({ framework: name, distributed });
          }}
        />
        <TextField
          label="Execution command"
          className="input mono"
          required
          spellCheck={false}
          autoCapitalize="none"
          placeholder="train.py --epochs 3"
          list={list}
          wrong={wrong.command}
          hint={<CommandHint draft={draft} />}
          value={draft.command}
          onValue={(command) => onDraft({ command })}
        />
        <datalist id={list}>
          {scripts.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <PairsField
          label="Parameters"
          nameHint="epochs"
          valueHint="3"
          hint="Appended to the command as --name value. Compare shows them side by side."
          wrong={wrong.parameters}
          pairs={draft.parameters}
          onPairs={(parameters) => onDraft({ parameters })}
        />
      </div>
      <div className="definition-column">
        <div className="field">
          <span className="field-label">Distributed training type</span>
          <div>
            <Segments
              label="Distributed training type"
              choices={KINDS.map((kind) => ({
                ...kind,
                isOff: framework !== undefined && !framework.distributed.includes(kind.value),
              }))}
              chosen={draft.distributed}
              onChoose={(value) => onDraft({ distributed: value as DefinitionDraft["distributed"] })}
            />
          </div>
          <div className={wrong.distributed ? "field-wrong" : "field-hint"}>
            {wrong.distributed ?? KIND_HINTS[draft.distributed]}
          </div>
        </div>
        <Nodes draft={draft} onDraft={onDraft} wrong={wrong} />
        <Compute />
        <TextField
          label="CPU threads per node"
          inputMode="numeric"
          wrong={wrong.num_threads}
          value={draft.numThreads}
          onValue={(numThreads) => onDraft({ numThreads })}
        />
        <SelectField
          label="CPU capability"
          hint="Restricts all workers to one instruction set. It affects the results."
          wrong={wrong.cpu_capability}
          choices={CPU_CAPABILITIES}
          value={draft.cpuCapability}
          onValue={(cpuCapability) => onDraft({ cpuCapability })}
        />
        <PythonField draft={draft} onDraft={onDraft} wrong={wrong.python} />
        <PairsField
          label="Environment"
          nameHint="NAME"
          valueHint="value"
          hint="Environment variables of the program."
          wrong={wrong.environment}
          pairs={draft.environment}
          onPairs={(environment) => onDraft({ environment })}
        />
        <details
          className="more"
          open={Boolean(wrong.seed || wrong.checkpoint_every || wrong.max_retries || wrong.max_run_s)}
        >
          <summary>More options</summary>
          <div className="definition-pair">
            <TextField
              label="Checkpoint every"
              placeholder="2epochs, 100steps, 60s"
              wrong={wrong.checkpoint_every}
              value={draft.checkpointEvery}
              onValue={(checkpointEvery) => onDraft({ checkpointEvery })}
            />
            <TextField
              label="Seed"
              inputMode="numeric"
              placeholder="set by the program"
              wrong={wrong.seed}
              value={draft.seed}
              onValue={(seed) => onDraft({ seed })}
            />
            <TextField
              label="Max retries"
              inputMode="numeric"
              wrong={wrong.max_retries}
              value={draft.maxRetries}
              onValue={(maxRetries) => onDraft({ maxRetries })}
            />
            <TextField
              label="Time limit (minutes)"
              inputMode="decimal"
              placeholder="never"
              wrong={wrong.max_run_s}
              value={draft.maxRunMinutes}
              onValue={(maxRunMinutes) => onDraft({ maxRunMinutes })}
            />
          </div>
        </details>
      </div>
    </div>
  );
}

/** The Python environment of the workers: one that the operator has named, or a path. */
function PythonField({ draft, onDraft, wrong }: Pick<FormProps, "draft" | "onDraft"> & { wrong: string | undefined }) {
  const list = useId();
  const named = useAsk(["settings", "interpreters"], "/interpreters", {}, { fresh_s: 600 });
  const names = named.data?.items.map((one) => one.name) ?? [];
  return (
    <>
      <TextField
        label="Python environment"
        className="input mono"
        placeholder="the server's own"
        spellCheck={false}
        autoCapitalize="none"
        list={list}
        wrong={wrong}
        hint={`${names.length ? `${names.join(", ")}, or the` : "The"} path of a Python executable or of a venv or conda folder on the machines.`}
        value={draft.python}
        onValue={(python) => onDraft({ python })}
      />
      <datalist id={list}>
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </>
  );
}

/** With what each node computes: one slot of the pool, as the machines have it. */
function Compute() {
  const slots = useAsk(["pool", "slots"], "/slots", {}, { fresh_s: 60 });
  const numGpus = slots.data?.items.filter((one) => one.device !== "cpu").length ?? 0;
  return (
    <div className="field">
      <span className="field-label">Compute configuration</span>
      <div>{numGpus > 0 ? "1 GPU per node" : "1 CPU slot per node"}</div>
      <div className="field-hint">
        {numGpus > 0 ? `The pool has ${countOf(numGpus, "GPU")}.` : "With GPUs in the pool, a node has 1 GPU."}
      </div>
    </div>
  );
}

function Nodes({ draft, onDraft, wrong }: Omit<FormProps, "frameworks" | "onPacking">) {
  if (draft.distributed === "single") return null;
  const most = (
    <TextField
      label={draft.distributed === "elastic" ? "Maximum nodes" : "Nodes"}
      inputMode="numeric"
      wrong={wrong.max_nodes}
      value={draft.maxNodes}
      onValue={(maxNodes) => onDraft({ maxNodes })}
    />
  );
  if (draft.distributed === "static") return most;
  return (
    <div className="definition-pair">
      {most}
      <TextField
        label="Minimum nodes"
        inputMode="numeric"
        wrong={wrong.min_nodes}
        value={draft.minNodes}
        onValue={(minNodes) => onDraft({ minNodes })}
      />
    </div>
  );
}

function CommandHint({ draft }: { draft: DefinitionDraft }) {
  const split = splitCommand(draft.command);
  if (split.wrong) return <>{split.wrong}</>;
  if (!split.words?.length) return <>Script and arguments. Shell features such as pipes or $VARS do not work here.</>;
  const words = [...split.words, ...writeParameters(parametersOf(draft.parameters))];
  return (
    <span className="words">
      <span className="only-heard">Full command: </span>
      {words.map((word, place) => (
        <code key={place} className="word">
          {word || "''"}
        </code>
      ))}
    </span>
  );
}
