/** All projects that one may see. */

import { useMemo, useState } from "react";
import { Button } from "@/parts/button";
import { SearchField } from "@/parts/field";
import { Ago } from "@/parts/now";
import { Answered, Empty } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { go, Link, useQueryValue } from "@/router/router";
import { maySubmit, useSession } from "@/session/session";
import { AccessCard } from "./access";
import { type Project, useProjects } from "./project-data";
import { ProjectDialog } from "./project-dialog";
import "@/pages/submit/submit.css";
import "./projects.css";

const COLUMNS: Column<Project>[] = [
  {
    name: "name",
    title: "Project",
    width: 180,
    grows: 3,
    sortBy: (project) => project.name,
    show: (project) => (
      <div className="cut">
        <Link to={`/projects/${project.id}`} title={project.name}>
          {project.name}
        </Link>{" "}
        <span className="quiet">{project.description}</span>
      </div>
    ),
  },
  {
    name: "owner",
    title: "Owner",
    width: 100,
    grows: 1,
    sortBy: (project) => project.owner,
    show: (project) => project.owner,
  },
  {
    name: "members",
    title: "Members",
    width: 120,
    grows: 2,
    leaves: 2,
    sortBy: (project) => project.members.length,
    show: (project) =>
      project.members.length ? (
        <span title={project.members.join(", ")}>{project.members.join(", ")}</span>
      ) : (
        <span className="quiet">only the owner</span>
      ),
  },
  {
    name: "queue",
    title: "Queue",
    width: 100,
    grows: 1,
    leaves: 1,
    sortBy: (project) => project.queue,
    show: (project) => project.queue,
  },
  {
    name: "created",
    title: "Created",
    width: 100,
    leaves: 3,
    sortBy: (project) => project.created_at,
    show: (project) => (
      <span className="quiet">
        <Ago time={project.created_at} />
      </span>
    ),
  },
];
const keyOf = (project: Project) => project.id;

/** The page. */
export default function ProjectsPage() {
  const session = useSession();
  const asked = useProjects();
  const [isNew, setNew] = useState(false);
  const [contains, setContains] = useQueryValue("q");
  const mayMake = maySubmit(session);
  return (
    <div className="page page-full">
      <div className="page-head">
        <h1>Projects</h1>
        <SearchField label="Search projects" value={contains} onValue={setContains} />
        {mayMake && (
          <Button icon="plus" onClick={() => setNew(true)}>
            New project
          </Button>
        )}
      </div>
      <AccessCard />
      <Answered asked={asked} what="the projects">
        {(answer) => <Projects projects={answer.items} contains={contains} mayMake={mayMake} />}
      </Answered>
      {isNew && <ProjectDialog onDone={(made) => go(`/projects/${made.id}`)} onClose={() => setNew(false)} />}
    </div>
  );
}

function Projects({
  projects,
  contains,
  mayMake,
}: {
  projects: readonly Project[];
  contains: string;
  mayMake: boolean;
}) {
  const shown = useMemo(() => {
    const sought = contains.toLowerCase();
    return projects.filter((one) =>
      [one.name, one.description, one.owner, one.queue, ...one.members].join(" ").toLowerCase().includes(sought),
    );
  }, [projects, contains]);
  return (
    <section className="card list-card" aria-label="Projects">
      <Table
        label="Projects"
        rows={shown}
        columns={COLUMNS}
        keyOf={keyOf}
        onOpen={(project) => go(`/projects/${project.id}`)}
        empty={
          contains ? (
            <Empty icon="search" title="No matching projects" />
          ) : (
            <Empty icon="folder" title="No projects yet">
              {mayMake
                ? "A project groups users, training definitions, experiments and jobs. Create the first one."
                : "You are not a member of a project. Ask the owner of one to add you."}
            </Empty>
          )
        }
      />
    </section>
  );
}
