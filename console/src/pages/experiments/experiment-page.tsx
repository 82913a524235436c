/** One experiment: what it runs, its jobs, and the button that runs it again. */

import { useRef, useState } from "react";
import { ask, makeKey } from "@/api/client";
import { sayProblem } from "@/api/problems";
import { useAsk } from "@/api/queries";
import { JobsCard } from "@/pages/projects/jobs-card";
import {
  type Definition,
  type Experiment,
  type FieldErrors,
  fieldErrorsOf,
  mayAdd,
  type Project,
  useDefinitions,
  useOutdate,
  useProject,
} from "@/pages/projects/project-data";
import { DefinitionRow } from "@/pages/submit/definition-row";
import { readCount } from "@/pages/submit/draft";
import { planOf, usePlans } from "@/pages/submit/plan";
import { PlanView } from "@/pages/submit/plan-view";
import { Button } from "@/parts/button";
import { Card } from "@/parts/card";
import { ConfirmDialog } from "@/parts/confirm";
import { Dialog } from "@/parts/dialog";
import { AreaField, CheckField, TextField } from "@/parts/field";
import { Ago } from "@/parts/now";
import { Answered, Note } from "@/parts/states";
import { useToasts } from "@/parts/toast";
import { go, Link, type PageProps } from "@/router/router";
import { useSession } from "@/session/session";
import "@/pages/submit/submit.css";
import "@/pages/projects/projects.css";

/** The page. */
export default function ExperimentPage({ names }: PageProps) {
  const experiment = names.experiment ?? "";
  const asked = useAsk(["experiments", "one", experiment], "/experiments/{experiment}", { path: { experiment } });
  return (
    <div className="page">
      <Answered asked={asked} what="the experiment">
        {(answer) => <ExperimentView experiment={answer} />}
      </Answered>
    </div>
  );
}

function ExperimentView({ experiment }: { experiment: Experiment }) {
  const session = useSession();
  const outdate = useOutdate();
  const project = useProject(experiment.project);
  const known = useDefinitions(experiment.project);
  const [shown, setShown] = useState<"run" | "edit" | "delete" | null>(null);
  const definitions = experiment.definitions
    .map((id) => known.data?.items.find((one) => one.id === id))
    .filter((one) => one !== undefined);
  const isMine = project.data !== undefined && mayAdd(session, project.data);
  const remove = async () => {
    await ask("delete", "/experiments/{experiment}", { path: { experiment: experiment.id } });
    await outdate("experiments");
    go(`/projects/${experiment.project}`);
  };
  return (
    <>
      <div className="page-head">
        <div className="page-title">
          <span className="small">
            <Link to="/projects">Projects</Link> <span className="quiet">/</span>{" "}
            <Link to={`/projects/${experiment.project}`}>{project.data?.name ?? "Project"}</Link>
          </span>
          <h1>{experiment.name}</h1>
          {experiment.description && <p className="soft">{experiment.description}</p>}
        </div>
        {isMine && (
          <>
            <Button icon="trash" look="plain" onClick={() => setShown("delete")}>
              Delete
            </Button>
            <Button icon="edit" onClick={() => setShown("edit")}>
              Edit
            </Button>
            <Button icon="play" look="main" disabled={definitions.length === 0} onClick={() => setShown("run")}>
              {experiment.runs.length > 0 ? "Run again" : "Run"}
            </Button>
          </>
        )}
      </div>
      <dl className="facts-line">
        <div>
          <dt>Data path</dt>
          <dd className={experiment.data ? "mono" : "quiet"}>{experiment.data ?? "none"}</dd>
        </div>
        <div>
          <dt>Global command option</dt>
          <dd className={experiment.arguments ? "mono" : "quiet"}>{experiment.arguments || "none"}</dd>
        </div>
        <div>
          <dt>Created by</dt>
          <dd>
            {experiment.created_by}, <Ago time={experiment.created_at} />
          </dd>
        </div>
      </dl>
      <Card title="Training definitions" isFlush>
        <Answered asked={known} what="the training definitions">
          {() => (
            <ul className="definitions">
              {definitions.map((one) => (
                <DefinitionRow key={one.id} definition={one} />
              ))}
            </ul>
          )}
        </Answered>
      </Card>
      <JobsCard of={{ experiment: experiment.id }} hint="No jobs yet. Click Run to start one." />
      {shown === "run" && project.data && (
        <RunDialog
          experiment={experiment}
          definitions={definitions}
          project={project.data}
          onClose={() => setShown(null)}
        />
      )}
      {shown === "edit" && (
        <EditDialog experiment={experiment} known={known.data?.items ?? []} onClose={() => setShown(null)} />
      )}
      {shown === "delete" && (
        <ConfirmDialog
          title={`Delete ${experiment.name}?`}
          action="Delete experiment"
          onDo={remove}
          onClose={() => setShown(null)}
        >
          Its jobs and training definitions are kept.
        </ConfirmDialog>
      )}
    </>
  );
}

interface RunProps {
  experiment: Experiment;
  definitions: readonly Definition[];
  project: Project;
  onClose: () => void;
}

function RunDialog({ experiment, definitions, project, onClose }: RunProps) {
  const toasts = useToasts();
  const outdate = useOutdate();
  const key = useRef(makeKey());
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set(definitions.map((one) => one.id)));
  const [priority, setPriority] = useState("");
  const [wrong, setWrong] = useState<FieldErrors>({});
  const running = definitions.filter((one) => chosen.has(one.id));
  const wanted = readCount(priority);
  const planned = running.map((one) => planOf(one, project.queue, wanted !== null && wanted >= 1 ? wanted : null));
  const plans = usePlans(planned);
  const run = async () => {
    try {
      await ask("post", "/experiments/{experiment}/runs", {
        path: { experiment: experiment.id },
        body: { definitions: running.map((one) => one.id), ...(priority.trim() ? { priority: wanted } : {}) },
        headers: { "Idempotency-Key": key.current },
      });
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
    toasts.tell(running.length === 1 ? "Job submitted." : `${running.length} jobs submitted.`);
    await outdate("jobs", "pool", "experiments");
  };
  const change = (does: () => void) => {
    key.current = makeKey();
    setWrong({});
    does();
  };
  return (
    <Dialog title={`Run ${experiment.name}`} action="Run" isBlocked={running.length === 0} onDo={run} onClose={onClose}>
      {definitions.length > 1 && (
        <div className="stack" role="group" aria-label="Training definitions to run">
          {definitions.map((one) => (
            <CheckField
              key={one.id}
              label={one.name}
              isOn={chosen.has(one.id)}
              onValue={(isOn) =>
                change(() =>
                  setChosen(
                    new Set(definitions.map(({ id }) => id).filter((id) => (id === one.id ? isOn : chosen.has(id)))),
                  ),
                )
              }
            />
          ))}
        </div>
      )}
      <TextField
        label="Priority"
        inputMode="numeric"
        placeholder="5000 (default)"
        hint="1 to 10000; a higher priority gets a larger share."
        wrong={wrong.priority}
        value={priority}
        onValue={(value) => change(() => setPriority(value))}
      />
      {planned.map((one, place) => {
        const plan = plans[place];
        return (
          <div key={one.key} className="stack">
            {planned.length > 1 && <h3 className="cut">{one.name}</h3>}
            {plan?.data && <PlanView plan={plan.data} min={one.min} max={one.max} />}
            {plan?.error && <Note tone="warn">{sayProblem(plan.error)}</Note>}
          </div>
        );
      })}
    </Dialog>
  );
}

interface EditProps {
  experiment: Experiment;
  known: readonly Definition[];
  onClose: () => void;
}

function EditDialog({ experiment, known, onClose }: EditProps) {
  const outdate = useOutdate();
  const [name, setName] = useState(experiment.name);
  const [description, setDescription] = useState(experiment.description);
  const [data, setData] = useState(experiment.data ?? "");
  const [given, setGiven] = useState(experiment.arguments);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set(experiment.definitions));
  const [wrong, setWrong] = useState<FieldErrors>({});
  const save = async () => {
    const kept = experiment.definitions.filter((id) => chosen.has(id));
    const added = known.map((one) => one.id).filter((id) => chosen.has(id) && !kept.includes(id));
    try {
      await ask("patch", "/experiments/{experiment}", {
        path: { experiment: experiment.id },
        body: {
          name: name.trim(),
          description: description.trim(),
          data: data.trim() || null,
          arguments: given.trim(),
          definitions: [...kept, ...added],
        },
      });
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
    await outdate("experiments");
  };
  return (
    <Dialog
      title={`Edit ${experiment.name}`}
      action="Save"
      isBlocked={!name.trim() || chosen.size === 0}
      onDo={save}
      onClose={onClose}
    >
      <TextField label="Name" required maxLength={100} wrong={wrong.name} value={name} onValue={setName} />
      <AreaField label="Description" rows={2} wrong={wrong.description} value={description} onValue={setDescription} />
      <TextField label="Data path" className="input mono" wrong={wrong.data} value={data} onValue={setData} />
      <TextField
        label="Global command option"
        className="input mono"
        wrong={wrong.arguments}
        hint="Applies to new jobs only."
        value={given}
        onValue={setGiven}
      />
      <div className="stack" role="group" aria-label="Training definitions">
        <span className="field-label">Training definitions</span>
        {known.map((one) => (
          <CheckField
            key={one.id}
            label={one.name}
            isOn={chosen.has(one.id)}
            onValue={(isOn) =>
              setChosen(new Set([...chosen].filter((id) => id !== one.id).concat(isOn ? [one.id] : [])))
            }
          />
        ))}
      </div>
    </Dialog>
  );
}
