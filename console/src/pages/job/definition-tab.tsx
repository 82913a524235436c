/** What a job was made from, and what differs from the job that it was cloned from. */

import { useAsk } from "@/api/queries";
import type { Job, Spec } from "@/api/types";
import { useProjectNames } from "@/pages/job-list/project-names";
import { CopyButton } from "@/parts/button";
import { Answered, ErrorState, Loading } from "@/parts/states";
import { Link } from "@/router/router";
import { type Difference, findDifferences, listFacts } from "./diff";

const MONO: ReadonlySet<string> = new Set(["Command", "Code", "Directory", "Data"]);

/** The definition. */
export function DefinitionTab({ job }: { job: Job }) {
  const spec = useAsk(["job", job.id], "/jobs/{job}/spec", { path: { job: job.id } }, { fresh_s: 600 });
  return (
    <Answered asked={spec} what="the definition">
      {(found) => (
        <div className="definition">
          {job.parent && <FromParent job={job} spec={found} parent={job.parent} />}
          <section className="card">
            <div className="card-head">
              <h2>Configuration</h2>
              <Origin job={job} />
            </div>
            <dl className="facts card-body">
              {listFacts(job, found).map((fact) => (
                <div key={fact.name} className="facts-row">
                  <dt>{fact.name}</dt>
                  <dd>
                    {MONO.has(fact.name) ? <code>{fact.value}</code> : fact.value}
                    {MONO.has(fact.name) && <CopyButton text={fact.value} what={fact.name.toLowerCase()} />}
                  </dd>
                </div>
              ))}
            </dl>
          </section>
        </div>
      )}
    </Answered>
  );
}

function Origin({ job }: { job: Job }) {
  const projects = useProjectNames();
  // Its experiment and definition are seen by those who see the project.
  const project = job.project && projects.get(job.project);
  if (!project) return null;
  return (
    <span className="row small">
      <Link to={`/projects/${job.project}`}>{project}</Link>
      {job.experiment && <Link to={`/experiments/${job.experiment}`}>Experiment</Link>}
      {job.definition && <Link to={`/definitions/${job.definition}`}>Training definition</Link>}
    </span>
  );
}

function FromParent({ job, spec, parent }: { job: Job; spec: Spec; parent: string }) {
  const path = { job: parent };
  const old = useAsk(["job", parent], "/jobs/{job}", { path });
  const oldSpec = useAsk(["job", parent], "/jobs/{job}/spec", { path }, { fresh_s: 600 });
  const error = old.error ?? oldSpec.error;
  return (
    <section className="card">
      <div className="card-head">
        <h2>Changes from parent</h2>
        <Link to={`/jobs/${parent}`}>{old.data?.name ?? parent}</Link>
        <Link to="/compare" query={{ job: [parent, job.id] }}>
          Compare
        </Link>
      </div>
      {error ? (
        <ErrorState error={error} what="the parent job" />
      ) : old.data && oldSpec.data ? (
        <Differences found={findDifferences(listFacts(old.data, oldSpec.data), listFacts(job, spec))} />
      ) : (
        <Loading numLines={3} />
      )}
    </section>
  );
}

function Differences({ found }: { found: readonly Difference[] }) {
  if (!found.length) return <p className="card-body soft">No differences.</p>;
  return (
    <table className="plain-table">
      <thead>
        <tr>
          <th scope="col">Field</th>
          <th scope="col">Parent</th>
          <th scope="col">This job</th>
        </tr>
      </thead>
      <tbody>
        {found.map((each) => (
          <tr key={each.name}>
            <th scope="row">{each.name}</th>
            <td className="differs-old">
              {each.before === null ? <span className="quiet">not set</span> : <del>{each.before}</del>}
            </td>
            <td className="differs-new">
              {each.after === null ? <span className="quiet">not set</span> : <ins>{each.after}</ins>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
