/** The experiment builder: name, data, training definitions; what would happen, before the button that makes it happen. */

import { useEffect, useMemo, useRef, useState } from "react";
import { ask, makeKey } from "@/api/client";
import { sayProblem } from "@/api/problems";
import { useAsk } from "@/api/queries";
import {
  type Definition,
  type FieldErrors,
  fieldErrorsOf,
  mayAdd,
  type Project,
  useDefinitions,
  useOutdate,
  useProjects,
} from "@/pages/projects/project-data";
import { ProjectDialog } from "@/pages/projects/project-dialog";
import { Button } from "@/parts/button";
import { Card } from "@/parts/card";
import { AreaField, Held, SelectField, TextField } from "@/parts/field";
import { Answered, Empty, Loading, Note } from "@/parts/states";
import { useToasts } from "@/parts/toast";
import { go, useRoute } from "@/router/router";
import { maySubmit, type Session, useSession } from "@/session/session";
import { DefinitionDialog } from "./definition-dialog";
import { DefinitionRow } from "./definition-row";
import { type DefinitionDraft, draftOf, EMPTY_DRAFT, nextName, readCount } from "./draft";
import { checkExperiment, EMPTY, type ExperimentDraft } from "./experiment-draft";
import { useKept } from "./kept";
import { planOf, usePlans } from "./plan";
import { PlanView } from "./plan-view";
import "./submit.css";

const NO_PROJECT = "Create a project first.";

/** The page. */
export default function SubmitPage() {
  const session = useSession();
  const projects = useProjects();
  if (!maySubmit(session)) {
    return (
      <div className="page">
        <div className="page-head">
          <h1>New experiment</h1>
        </div>
        <Empty icon="lock" title="Viewers cannot start jobs">
          Ask an administrator for the role user.
        </Empty>
      </div>
    );
  }
  return (
    <div className="page">
      <Answered asked={projects} what="the projects">
        {(answer) => <Builder projects={mineFirst(answer.items, session)} />}
      </Answered>
    </div>
  );
}

function mineFirst(projects: readonly Project[], session: Session): Project[] {
  const isMine = (project: Project) => Number(project.owner === session.name);
  return projects.filter((project) => mayAdd(session, project)).sort((one, other) => isMine(other) - isMine(one));
}

function Builder({ projects }: { projects: readonly Project[] }) {
  const session = useSession();
  const { query } = useRoute();
  const toasts = useToasts();
  const outdate = useOutdate();
  const [draft, onDraft, forgetDraft] = useKept(`experiment ${session.name}`, () => EMPTY);
  const [definition, onDefinition, forgetDefinition] = useKept<DefinitionDraft>(
    `definition ${session.name}`,
    () => EMPTY_DRAFT,
    ["packed"],
  );
  const [isAdding, setAdding] = useState(false);
  const [isNewProject, setNewProject] = useState(false);
  const [wrong, setWrong] = useState<FieldErrors>({});
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState<"create" | "run" | null>(null);
  const key = useRef(makeKey());

  const wanted = draft.project || query.get("project") || "";
  const project = projects.find((one) => one.id === wanted) ?? projects[0];
  const asked = useDefinitions(project?.id ?? "");
  const known = useMemo(() => new Map((asked.data?.items ?? []).map((one) => [one.id, one])), [asked.data]);
  const ids = draft.definitions[project?.id ?? ""] ?? [];
  const definitions = ids.map((id) => known.get(id)).filter((one) => one !== undefined);
  const isStarted = useStartedFrom(query.get("definition"), query.get("edit"), draft, {
    onDraft,
    onDefinition,
    onEdit: () => setAdding(true),
  });

  const change = (values: Partial<ExperimentDraft>) => {
    setWrong({});
    setProblem(null);
    key.current = makeKey();
    onDraft(values);
  };
  const setIds = (next: readonly string[]) =>
    project && change({ definitions: { ...draft.definitions, [project.id]: next }, project: project.id });

  const submit = async (runs: boolean) => {
    if (!project) return;
    const seen = checkExperiment(draft, ids.length);
    setWrong(seen);
    setProblem(null);
    if (Object.keys(seen).length > 0) return;
    setBusy(runs ? "run" : "create");
    try {
      const experiment = await ask("post", "/projects/{project}/experiments", {
        path: { project: project.id },
        body: {
          name: draft.name.trim(),
          description: draft.description.trim(),
          definitions: [...ids],
          data: draft.data.trim() || null,
          arguments: draft.arguments.trim(),
        },
      });
      forgetDraft();
      forgetDefinition();
      await outdate("experiments");
      if (runs) {
        await toasts.attempt(
          () =>
            ask("post", "/experiments/{experiment}/runs", {
              path: { experiment: experiment.id },
              body: draft.priority.trim() ? { priority: readCount(draft.priority) } : {},
              headers: { "Idempotency-Key": key.current },
            }),
          ids.length === 1 ? "Job submitted." : `${ids.length} jobs submitted.`,
        );
        await outdate("jobs", "pool");
      }
      go(`/experiments/${experiment.id}`);
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      setProblem(sayProblem(thrown));
      setBusy(null);
    }
  };

  const blocked = project ? {} : { title: NO_PROJECT, "aria-describedby": "builder-blocked" };
  if (!isStarted) return <Loading />;
  return (
    <>
      <div className="page-head">
        <h1>New experiment</h1>
      </div>
      <div className="builder">
        <div className="builder-form">
          <Held isHeld={busy !== null}>
            <Card title="Experiment">
              <div className="stack">
                <div className="builder-project">
                  {project ? (
                    <SelectField
                      label="Project"
                      choices={projects.map((one) => ({ value: one.id, label: `${one.name} (${one.owner})` }))}
                      hint={`Its jobs go to the queue ${project.queue}.`}
                      value={project.id}
                      onValue={(value) => change({ project: value })}
                    />
                  ) : (
                    <Note tone="info">
                      An experiment belongs to a project. Create a project first; it only needs a name.
                    </Note>
                  )}
                  <Button icon="plus" onClick={() => setNewProject(true)}>
                    New project
                  </Button>
                </div>
                <TextField
                  label="Name"
                  required
                  maxLength={100}
                  wrong={wrong.name}
                  value={draft.name}
                  onValue={(name) => change({ name })}
                />
                <AreaField
                  label="Description"
                  rows={2}
                  wrong={wrong.description}
                  value={draft.description}
                  onValue={(description) => change({ description })}
                />
                <TextField
                  label="Data path"
                  className="input mono"
                  placeholder="pytorch-mnist"
                  spellCheck={false}
                  hint="Optional directory with the data: a name below the server's data directory, or an absolute path. Your program reads its path from $LEGATO_DATA; a FabricModel program from $DATA_DIR."
                  wrong={wrong.data}
                  value={draft.data}
                  onValue={(data) => change({ data })}
                />
                <div className="definition-pair">
                  <TextField
                    label="Global command option"
                    className="input mono"
                    placeholder="--verbose"
                    spellCheck={false}
                    hint="Appended to the arguments of every program."
                    wrong={wrong.arguments}
                    value={draft.arguments}
                    onValue={(value) => change({ arguments: value })}
                  />
                  <TextField
                    label="Priority"
                    inputMode="numeric"
                    placeholder="5000 (default)"
                    hint="1 to 10000; a higher priority gets a larger share."
                    wrong={wrong.priority}
                    value={draft.priority}
                    onValue={(priority) => change({ priority })}
                  />
                </div>
              </div>
            </Card>
            <Card
              title="Training definitions"
              isFlush
              tools={
                <Button icon="plus" isSmall disabled={!project} {...blocked} onClick={() => setAdding(true)}>
                  Add training definition
                </Button>
              }
            >
              {ids.length === 0 ? (
                <Empty icon="file" title="No training definitions yet">
                  A training definition has the code, the command, and the number of nodes.
                  {!project && ` ${NO_PROJECT}`}
                  {wrong.definitions && <span className="field-wrong"> {wrong.definitions}</span>}
                </Empty>
              ) : (
                <ul className="definitions">
                  {definitions.map((one) => (
                    <DefinitionRow
                      key={one.id}
                      definition={one}
                      onRemove={() => setIds(ids.filter((id) => id !== one.id))}
                      onEdit={() => {
                        const names = [...known.values()].map((other) => other.name);
                        onDefinition({ ...draftOf(one), name: nextName(one.name, names) });
                        setAdding(true);
                      }}
                    />
                  ))}
                </ul>
              )}
            </Card>
          </Held>
        </div>
        <aside className="builder-side" aria-label="Start preview">
          <Card title="Start preview">
            <div className="stack">
              <Plans
                definitions={definitions}
                queue={project?.queue ?? "default"}
                data={draft.data.trim() || null}
                priority={readCount(draft.priority)}
              />
              {problem && <Note tone="bad">{problem}</Note>}
              {Object.keys(wrong).length > 0 && !problem && <Note tone="bad">Fix the highlighted fields.</Note>}
              {!project && (
                <p className="small soft" id="builder-blocked">
                  {NO_PROJECT}
                </p>
              )}
              <div className="row row-end row-wrap">
                <Button
                  isBusy={busy === "create"}
                  disabled={busy !== null || !project}
                  {...blocked}
                  onClick={() => void submit(false)}
                >
                  Create
                </Button>
                <Button
                  look="main"
                  icon="play"
                  isBusy={busy === "run"}
                  disabled={busy !== null || !project}
                  {...blocked}
                  onClick={() => void submit(true)}
                >
                  Create and run
                </Button>
              </div>
            </div>
          </Card>
        </aside>
      </div>
      {isAdding && project && (
        <DefinitionDialog
          project={project}
          draft={definition}
          onDraft={onDefinition}
          has={ids}
          onAdded={(added) => {
            forgetDefinition();
            setIds([...ids, added.id]);
          }}
          onClose={() => setAdding(false)}
        />
      )}
      {isNewProject && (
        <ProjectDialog onDone={(made) => change({ project: made.id })} onClose={() => setNewProject(false)} />
      )}
    </>
  );
}

interface Starters {
  onDraft: (change: Partial<ExperimentDraft>) => void;
  onDefinition: (change: Partial<DefinitionDraft>) => void;
  onEdit: () => void;
}

/** Begin with a definition that the address names, as it is (`definition`) or to be changed (`edit`); return whether that is done. */
function useStartedFrom(
  used: string | null,
  edited: string | null,
  draft: ExperimentDraft,
  { onDraft, onDefinition, onEdit }: Starters,
): boolean {
  const id = used ?? edited ?? "";
  const wish = `${used ? "use" : "edit"} ${id}`;
  const asked = useAsk(
    ["definitions", "one", id],
    "/definitions/{definition}",
    { path: { definition: id } },
    { isOn: id !== "" },
  );
  const isDone = id === "" || draft.from === wish || asked.isError;
  const found: Definition | undefined = asked.data;
  // biome-ignore lint/correctness/useExhaustiveDependencies: it begins once with each wish
  useEffect(() => {
    if (isDone || !found) return;
    const given = draft.definitions[found.project] ?? [];
    onDraft({
      from: wish,
      project: found.project,
      ...(used && !given.includes(found.id)
        ? { definitions: { ...draft.definitions, [found.project]: [...given, found.id] } }
        : {}),
    });
    if (used) return;
    onDefinition({ ...draftOf(found), name: nextName(found.name, [found.name]) });
    onEdit();
  }, [isDone, found]);
  return isDone;
}

interface PlansProps {
  definitions: readonly Definition[];
  queue: string;
  data: string | null;
  priority: number | null;
}

function Plans({ definitions, queue, data, priority }: PlansProps) {
  const planned = useMemo(
    () => definitions.map((one) => planOf(one, queue, priority !== null && priority >= 1 ? priority : null, data)),
    [definitions, queue, priority, data],
  );
  const plans = usePlans(planned);
  if (definitions.length === 0) {
    return (
      <p className="soft">Add a training definition to see when it would start and which jobs would give up slots.</p>
    );
  }
  return (
    <div className="stack" aria-live="polite">
      {planned.map((one, place) => {
        const plan = plans[place];
        return (
          <div key={one.key} className="stack">
            {planned.length > 1 && <h3 className="cut">{one.name}</h3>}
            {plan?.data ? (
              <PlanView plan={plan.data} min={one.min} max={one.max} />
            ) : plan?.error ? (
              <Note tone="warn">{sayProblem(plan.error)}</Note>
            ) : (
              <Loading numLines={2} />
            )}
          </div>
        );
      })}
      {planned.length > 1 && <p className="small quiet">Each preview assumes that only this job is submitted.</p>}
    </div>
  );
}
