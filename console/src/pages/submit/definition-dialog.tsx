/** The window that adds a training definition: a new one, or one that is there. */

import { useMemo, useState } from "react";
import { ask } from "@/api/client";
import { sayProblem } from "@/api/problems";
import { GrantedAccess, OwnersToAsk } from "@/pages/projects/access";
import {
  type Definition,
  type FieldErrors,
  fieldErrorsOf,
  type Project,
  useDefinitions,
  useFrameworks,
  useOutdate,
  useProjects,
} from "@/pages/projects/project-data";
import { Dialog } from "@/parts/dialog";
import { SelectField, TextField } from "@/parts/field";
import { Ago } from "@/parts/now";
import { Answered, Empty } from "@/parts/states";
import { TabPanel, Tabs } from "@/parts/tabs";
import { useToasts } from "@/parts/toast";
import { DefinitionForm } from "./definition-form";
import { bodyOf, boundsOfDraft, checkDraft, type DefinitionDraft, draftOf, nextName } from "./draft";
import { usePlans } from "./plan";
import { PlanView } from "./plan-view";
import { upload } from "./upload";

interface DialogProps {
  project: Project;
  draft: DefinitionDraft;
  onDraft: (change: Partial<DefinitionDraft>) => void;
  /** Definitions that the experiment has already. */
  has: readonly string[];
  onAdded: (definition: Definition, isNew: boolean) => void;
  onClose: () => void;
}

/** The dialog; what was typed belongs to who shows it, and is there again when it is opened again. */
export function DefinitionDialog(props: DialogProps) {
  const { project, draft, onDraft, has, onAdded, onClose } = props;
  const [tab, setTab] = useState("new");
  const [wrong, setWrong] = useState<FieldErrors>({});
  const [chosen, setChosen] = useState<Definition | null>(null);
  const [isPacking, setPacking] = useState(false);
  const frameworks = useFrameworks();
  const outdate = useOutdate();
  const toasts = useToasts();
  const taken = useDefinitions(project.id);

  const create = async () => {
    const seen = checkDraft(draft);
    setWrong(seen);
    if (Object.keys(seen).length > 0) throw new Error("Fix the highlighted fields.");
    try {
      if (draft.codeFrom === "upload" && draft.packed) await sendCode(draft);
      const body = bodyOf(draft);
      const made = await ask("post", "/projects/{project}/definitions", { path: { project: project.id }, body });
      await outdate("definitions");
      if (made.notice) toasts.tell(made.notice);
      onAdded(made, true);
    } catch (thrown) {
      setWrong(thrown instanceof BadCode ? { code: thrown.message } : fieldErrorsOf(thrown));
      throw thrown;
    }
  };
  const add = async () => {
    if (!chosen) return;
    if (chosen.project === project.id) return onAdded(chosen, false);
    // A definition belongs to its project: of another one's a copy is made here.
    const names = (taken.data?.items ?? []).map((one) => one.name);
    const body = { ...bodyOf(draftOf(chosen)), name: nextName(chosen.name, names) };
    const made = await ask("post", "/projects/{project}/definitions", { path: { project: project.id }, body });
    await outdate("definitions");
    onAdded(made, true);
  };
  return (
    <Dialog
      title="Add training definition"
      isWide
      action={tab === "new" ? "Create" : "Add"}
      isBlocked={tab === "new" ? isPacking : chosen === null}
      aside={tab === "new" && <DraftPlan draft={draft} queue={project.queue} />}
      typed={tab === "new" ? draft : chosen}
      onDo={tab === "new" ? create : add}
      onClose={onClose}
    >
      <Tabs
        label="Source of the definition"
        tabs={[
          { name: "new", label: "New definition" },
          { name: "existing", label: "Existing definition" },
        ]}
        chosen={tab}
        onChoose={setTab}
      />
      <TabPanel chosen={tab}>
        {tab === "new" ? (
          <Answered asked={frameworks} what="the frameworks">
            {(answer) => (
              <DefinitionForm
                draft={draft}
                onDraft={(change) => {
                  setWrong({});
                  onDraft(change);
                }}
                onPacking={setPacking}
                wrong={wrong}
                frameworks={answer.items}
              />
            )}
          </Answered>
        ) : (
          <Existing project={project} has={has} chosen={chosen} onChoose={setChosen} />
        )}
      </TabPanel>
    </Dialog>
  );
}

class BadCode extends Error {}

async function sendCode({ packed }: DefinitionDraft): Promise<void> {
  if (!packed) return;
  try {
    await upload(packed);
  } catch (thrown) {
    throw new BadCode(sayProblem(thrown));
  }
}

function DraftPlan({ draft, queue }: { draft: DefinitionDraft; queue: string }) {
  const { min, max, isElastic } = boundsOfDraft(draft);
  const planned = useMemo(
    () => [{ key: "draft", name: "draft", queue, min: Math.min(min, max), max, isElastic, priority: null }],
    [queue, min, max, isElastic],
  );
  const [plan] = usePlans(planned);
  if (!plan?.data) return null;
  return <PlanView plan={plan.data} min={min} max={max} />;
}

interface ExistingProps {
  project: Project;
  has: readonly string[];
  chosen: Definition | null;
  onChoose: (definition: Definition | null) => void;
}

function Existing({ project, has, chosen, onChoose }: ExistingProps) {
  const [from, setFrom] = useState(project.id);
  const [contains, setContains] = useState("");
  const projects = useProjects();
  const definitions = useDefinitions(from);
  const show = (project: string) => {
    setFrom(project);
    onChoose(null);
  };
  const hasOthers = (projects.data?.items ?? []).some((one) => one.id !== from);
  const match = (one: Definition) => `${one.name} ${one.description}`.toLowerCase().includes(contains.toLowerCase());
  return (
    <div className="stack">
      <div className="definition-pair">
        <SelectField
          label="Project"
          choices={(projects.data?.items ?? [project]).map((one) => ({
            value: one.id,
            label: `${one.name} (${one.owner})`,
          }))}
          hint={from === project.id ? undefined : "It will be copied to the project of this experiment."}
          value={from}
          onValue={show}
        />
        <TextField label="Search" type="search" value={contains} onValue={setContains} />
      </div>
      <GrantedAccess shown={from} onShow={show} />
      <Answered asked={definitions} what="the training definitions">
        {(answer) => {
          const shown = answer.items.filter((one) => !has.includes(one.id) && match(one));
          if (shown.length === 0) {
            return (
              <Empty icon="file" title="No training definitions">
                {contains
                  ? "None of this project matches the search."
                  : `This project has none ${from === project.id && has.length > 0 ? "other than those added" : "yet"}.`}
                {!contains && hasOthers && " Choose another project."}
              </Empty>
            );
          }
          return (
            <div className="choices" role="radiogroup" aria-label="Training definition">
              {shown.map((one) => (
                <label key={one.id} className="choice" data-chosen={chosen?.id === one.id ? "" : undefined}>
                  <input
                    type="radio"
                    name="definition"
                    checked={chosen?.id === one.id}
                    onChange={() => onChoose(one)}
                  />
                  <span className="grow">
                    <strong>{one.name}</strong> <span className="quiet">by {one.created_by}, </span>
                    <span className="quiet">
                      <Ago time={one.created_at} />
                    </span>
                    <span className="choice-command mono cut">{one.command}</span>
                  </span>
                  <span className="chip">
                    {one.distributed} {one.max_nodes}
                  </span>
                </label>
              ))}
            </div>
          );
        }}
      </Answered>
      <OwnersToAsk />
    </div>
  );
}
