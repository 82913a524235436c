/** One training definition: all that it says, its jobs, and the ways to a new one like it. */

import { type ReactNode, useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import { formatDuration } from "@/format/time";
import { JobsCard } from "@/pages/projects/jobs-card";
import {
  type Definition,
  type FieldErrors,
  fieldErrorsOf,
  mayAdd,
  useFrameworks,
  useOutdate,
  useProject,
} from "@/pages/projects/project-data";
import { splitCommand, writeParameters } from "@/pages/submit/command";
import { sayNodes } from "@/pages/submit/definition-row";
import { Button, CopyButton } from "@/parts/button";
import { Card } from "@/parts/card";
import { ConfirmDialog } from "@/parts/confirm";
import { Dialog } from "@/parts/dialog";
import { AreaField, TextField } from "@/parts/field";
import { Ago } from "@/parts/now";
import { Answered } from "@/parts/states";
import { go, Link, type PageProps } from "@/router/router";
import { useSession } from "@/session/session";
import { CodeFact } from "./code-fact";
import "@/pages/submit/submit.css";
import "@/pages/projects/projects.css";

/** The page. */
export default function DefinitionPage({ names }: PageProps) {
  const definition = names.definition ?? "";
  const asked = useAsk(["definitions", "one", definition], "/definitions/{definition}", { path: { definition } });
  return (
    <div className="page">
      <Answered asked={asked} what="the training definition">
        {(answer) => <DefinitionView definition={answer} />}
      </Answered>
    </div>
  );
}

function DefinitionView({ definition }: { definition: Definition }) {
  const session = useSession();
  const outdate = useOutdate();
  const project = useProject(definition.project);
  const [shown, setShown] = useState<"name" | "delete" | null>(null);
  const isMine = project.data !== undefined && mayAdd(session, project.data);
  const remove = async () => {
    await ask("delete", "/definitions/{definition}", { path: { definition: definition.id } });
    await outdate("definitions");
    go(`/projects/${definition.project}`);
  };
  return (
    <>
      <div className="page-head">
        <div className="page-title">
          <span className="small">
            <Link to="/projects">Projects</Link> <span className="quiet">/</span>{" "}
            <Link to={`/projects/${definition.project}`}>{project.data?.name ?? "Project"}</Link>
          </span>
          <h1>{definition.name}</h1>
          {definition.description && <p className="soft">{definition.description}</p>}
        </div>
        {isMine && (
          <>
            <Button icon="trash" look="plain" onClick={() => setShown("delete")}>
              Delete
            </Button>
            <Button icon="edit" onClick={() => setShown("name")}>
              Rename
            </Button>
            <Button icon="branch" onClick={() => go("/submit", { edit: definition.id })}>
              Edit a copy
            </Button>
            <Button icon="play" look="main" onClick={() => go("/submit", { definition: definition.id })}>
              Use in an experiment
            </Button>
          </>
        )}
      </div>
      <Card title="Definition">
        <Facts definition={definition} />
      </Card>
      <JobsCard of={{ definition: definition.id }} hint="Use it in an experiment to start a job." />
      {shown === "name" && <NameDialog definition={definition} onClose={() => setShown(null)} />}
      {shown === "delete" && (
        <ConfirmDialog
          title={`Delete ${definition.name}?`}
          action="Delete definition"
          onDo={remove}
          onClose={() => setShown(null)}
        >
          You can delete a training definition only if no experiment uses it. Its jobs are kept.
        </ConfirmDialog>
      )}
    </>
  );
}

function Facts({ definition }: { definition: Definition }) {
  const frameworks = useFrameworks();
  const framework = frameworks.data?.items.find((one) => one.name === definition.framework);
  const words = [...(splitCommand(definition.command).words ?? []), ...writeParameters(definition.parameters)];
  const parameters = Object.entries(definition.parameters);
  const environment = Object.entries(definition.environment);
  return (
    <dl className="facts">
      <Fact name="Framework">{framework?.title ?? definition.framework}</Fact>
      <Fact name="Command">
        <span className="row">
          <code>{definition.command}</code>
          <CopyButton text={definition.command} what="the command" />
        </span>
      </Fact>
      {parameters.length > 0 && (
        <>
          <Fact name="Parameters">
            <Pairs pairs={parameters.map(([name, value]) => [name, String(value)])} />
          </Fact>
          <Fact name="Full command">
            <span className="words">
              {words.map((word, place) => (
                <code key={place} className="word">
                  {word || "''"}
                </code>
              ))}
            </span>
          </Fact>
        </>
      )}
      <Fact name="Code">
        <CodeFact definition={definition} />
      </Fact>
      <Fact name="Distributed training">{sayNodes(definition)}</Fact>
      <Fact name="Threads per node">{definition.num_threads}</Fact>
      <Fact name="Python environment">{definition.python ?? <None word="the server's own" />}</Fact>
      <Fact name="CPU capability">{definition.cpu_capability ?? <None word="best of each machine" />}</Fact>
      <Fact name="Environment">
        {environment.length ? <Pairs pairs={environment.map(([name, value]) => [name, value ?? "…"])} /> : <None />}
      </Fact>
      <Fact name="Seed">{definition.seed ?? <None word="set by the program" />}</Fact>
      <Fact name="Checkpoint every">
        {definition.checkpoint_every ? definition.checkpoint_every : <None word="only on pause, stop or end" />}
      </Fact>
      <Fact name="Max retries">{definition.max_retries}</Fact>
      <Fact name="Time limit">{definition.max_run_s === null ? <None /> : formatDuration(definition.max_run_s)}</Fact>
      <Fact name="Created by">
        {definition.created_by}, <Ago time={definition.created_at} />
      </Fact>
      <Fact name="ID">
        <span className="row">
          <code>{definition.id}</code>
          <CopyButton text={definition.id} what="the ID" />
        </span>
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function None({ word = "none" }: { word?: string }) {
  return <span className="quiet">{word}</span>;
}

function Pairs({ pairs }: { pairs: readonly (readonly [string, string])[] }) {
  return (
    <span className="words">
      {pairs.map(([name, value]) => (
        <code key={name} className="word">
          {name} = {value}
        </code>
      ))}
    </span>
  );
}

function NameDialog({ definition, onClose }: { definition: Definition; onClose: () => void }) {
  const outdate = useOutdate();
  const [name, setName] = useState(definition.name);
  const [description, setDescription] = useState(definition.description);
  const [wrong, setWrong] = useState<FieldErrors>({});
  const save = async () => {
    const body = { name: name.trim(), description: description.trim() };
    try {
      await ask("patch", "/definitions/{definition}", { path: { definition: definition.id }, body });
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
    await outdate("definitions");
  };
  return (
    <Dialog title={`Rename ${definition.name}`} action="Save" isBlocked={!name.trim()} onDo={save} onClose={onClose}>
      <TextField label="Name" required maxLength={100} wrong={wrong.name} value={name} onValue={setName} />
      <AreaField label="Description" rows={2} wrong={wrong.description} value={description} onValue={setDescription} />
      <p className="small soft">
        Only the name and description can be changed, because existing jobs refer to the rest. To change more, use Edit
        a copy.
      </p>
    </Dialog>
  );
}
