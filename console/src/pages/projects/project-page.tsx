/** One project: its people and its queue, its training definitions, experiments and jobs. */

import { useState } from "react";
import { ask } from "@/api/client";
import { DefinitionRow } from "@/pages/submit/definition-row";
import { Button } from "@/parts/button";
import { Card } from "@/parts/card";
import { ConfirmDialog } from "@/parts/confirm";
import { Ago } from "@/parts/now";
import { Answered, Empty } from "@/parts/states";
import { go, Link, type PageProps } from "@/router/router";
import { useSession } from "@/session/session";
import { JobsCard } from "./jobs-card";
import {
  mayAdd,
  mayManage,
  type Project,
  useDefinitions,
  useExperiments,
  useOutdate,
  useProject,
} from "./project-data";
import { ProjectDialog } from "./project-dialog";
import "@/pages/submit/submit.css";
import "./projects.css";

/** The page. */
export default function ProjectPage({ names }: PageProps) {
  const asked = useProject(names.project ?? "");
  return (
    <div className="page">
      <Answered asked={asked} what="the project">
        {(project) => <ProjectView project={project} />}
      </Answered>
    </div>
  );
}

function ProjectView({ project }: { project: Project }) {
  const session = useSession();
  const outdate = useOutdate();
  const [shown, setShown] = useState<"edit" | "delete" | null>(null);
  const manages = mayManage(session, project);
  const remove = async () => {
    await ask("delete", "/projects/{project}", { path: { project: project.id } });
    await outdate("projects");
    go("/projects");
  };
  return (
    <>
      <div className="page-head">
        <div className="page-title">
          <Link to="/projects" className="small">
            Projects
          </Link>
          <h1>{project.name}</h1>
          {project.description && <p className="soft">{project.description}</p>}
        </div>
        {manages && (
          <>
            <Button icon="trash" look="plain" onClick={() => setShown("delete")}>
              Delete
            </Button>
            <Button icon="edit" onClick={() => setShown("edit")}>
              Edit
            </Button>
          </>
        )}
        {mayAdd(session, project) && (
          <Button icon="plus" look="main" onClick={() => go("/submit", { project: project.id })}>
            New experiment
          </Button>
        )}
      </div>
      <dl className="facts-line">
        <div>
          <dt>Owner</dt>
          <dd>{project.owner}</dd>
        </div>
        <div>
          <dt>Members</dt>
          <dd>{project.members.length ? project.members.join(", ") : "only the owner"}</dd>
        </div>
        <div>
          <dt>Queue</dt>
          <dd>{project.queue}</dd>
        </div>
        <div>
          <dt>Webhooks</dt>
          <dd>
            <Link to="/webhooks" query={{ project: project.id }}>
              Show
            </Link>
          </dd>
        </div>
        <div>
          <dt>Created</dt>
          <dd>
            <Ago time={project.created_at} />
          </dd>
        </div>
      </dl>
      <div className="project-grid">
        <Experiments project={project} />
        <Definitions project={project} />
      </div>
      <JobsCard of={{ project: project.id }} hint="Open an experiment and click Run, or create a new one." />
      {shown === "edit" && (
        <ProjectDialog project={project} onDone={() => setShown(null)} onClose={() => setShown(null)} />
      )}
      {shown === "delete" && (
        <ConfirmDialog
          title={`Delete ${project.name}?`}
          action="Delete project"
          onDo={remove}
          onClose={() => setShown(null)}
        >
          You can delete a project only if it has no experiments and no training definitions. Its jobs are kept.
        </ConfirmDialog>
      )}
    </>
  );
}

function Experiments({ project }: { project: Project }) {
  const asked = useExperiments(project.id);
  return (
    <Card title="Experiments" isFlush>
      <Answered asked={asked} what="the experiments">
        {({ items }) =>
          items.length === 0 ? (
            <Empty icon="star" title="No experiments yet">
              An experiment runs one or more training definitions.
            </Empty>
          ) : (
            <ul className="definitions">
              {items.map((one) => (
                <li key={one.id} className="definition-row">
                  <div className="grow">
                    <Link to={`/experiments/${one.id}`} className="definition-name">
                      {one.name}
                    </Link>
                    <div className="soft cut">
                      {one.definitions.length === 1 ? "1 definition" : `${one.definitions.length} definitions`} ·{" "}
                      {one.runs.length === 1 ? "1 job" : `${one.runs.length} jobs`}
                      {one.data && (
                        <>
                          {" "}
                          · <span className="mono">{one.data}</span>
                        </>
                      )}
                    </div>
                  </div>
                  <span className="quiet small">
                    {one.created_by}, <Ago time={one.created_at} />
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Answered>
    </Card>
  );
}

function Definitions({ project }: { project: Project }) {
  const asked = useDefinitions(project.id);
  return (
    <Card title="Training definitions" isFlush>
      <Answered asked={asked} what="the training definitions">
        {({ items }) =>
          items.length === 0 ? (
            <Empty icon="file" title="No training definitions yet">
              Add one when you create an experiment.
            </Empty>
          ) : (
            <ul className="definitions">
              {items.map((one) => (
                <DefinitionRow key={one.id} definition={one} />
              ))}
            </ul>
          )
        }
      </Answered>
    </Card>
  );
}
