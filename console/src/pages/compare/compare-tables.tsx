/** Tables of several jobs side by side: their results and their configurations. */

import { type ReactNode, useState } from "react";
import type { Job } from "@/api/types";
import { formatCount, formatValue } from "@/format/numbers";
import { formatDuration } from "@/format/time";
import { secondsRun, secondsWaited, tellReason } from "@/jobs/facts";
import { tellApart } from "@/jobs/names";
import { coloursApart, Swatch } from "@/parts/colour";
import { CheckField } from "@/parts/field";
import { useNow } from "@/parts/now";
import { StageBadge } from "@/parts/stage";
import { go, Link, readRoute, useRoute } from "@/router/router";
import {
  type Direction,
  findFigures,
  findLine,
  knownDirection,
  listNames,
  readDirections,
  slotHours,
  type Whole,
} from "./compare";

function Heads({ jobs }: { jobs: readonly Job[] }) {
  const called = tellApart(jobs);
  const colours = coloursApart(jobs.map(({ id }) => id));
  return (
    <thead>
      <tr>
        <td />
        {jobs.map((job) => (
          <th key={job.id} scope="col">
            <span className="row">
              <Swatch id={job.id} colour={colours.get(job.id)} />
              <Link to={`/jobs/${job.id}`} className="cut compare-name" title={`${job.name} (${job.id})`}>
                {called.get(job.id)}
              </Link>
            </span>
          </th>
        ))}
      </tr>
    </thead>
  );
}

interface TableProps {
  title: string;
  jobs: readonly Job[];
  tools?: ReactNode;
  children: ReactNode;
}

function SideBySide({ title, jobs, tools, children }: TableProps) {
  return (
    <section className="card" aria-label={title}>
      <div className="card-head">
        <h2>{title}</h2>
        {tools}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse scrolls it by keys */}
      <div className="compare-box" tabIndex={0} role="group" aria-label={title}>
        <table className="compare-table number">
          <Heads jobs={jobs} />
          <tbody>{children}</tbody>
        </table>
      </div>
    </section>
  );
}

/** The results of the jobs: last and best values of each metric, times, and their usage of the pool. */
export function FiguresTable({ compared, unit }: { compared: readonly Whole[]; unit: string }) {
  const now = useNow();
  const chosen = readDirections(useRoute().query);
  const jobs = compared.map(({ job }) => job);
  const rows: [string, (one: Whole) => ReactNode, ReactNode?][] = [
    ["State", ({ job }) => <StageBadge stage={job.stage} title={tellReason(job)} />],
    ["Owner", ({ job }) => job.owner],
    ["Steps", ({ job }) => formatCount(job.progress?.step)],
    ["Waited", ({ job }) => formatDuration(secondsWaited(job, now))],
    ["Runtime", ({ job }) => formatDuration(secondsRun(job, now))],
    [unit, ({ allocations }) => formatValue(slotHours(allocations, now), 3)],
    ["Samples per second", ({ job }) => formatValue(job.progress?.samples_per_s, 3)],
    ["Retries", ({ job }) => job.num_retries],
  ];
  for (const name of listNames(compared)) {
    const direction = chosen.get(name) === undefined ? knownDirection(name) : (chosen.get(name) ?? null);
    rows.push([
      name,
      (one) => {
        const { last, best } = findFigures(findLine(one, name, "step"), direction);
        if (last === null) return <span className="quiet">–</span>;
        return (
          <>
            {formatValue(last)}
            {best !== null && <span className="quiet small"> best {formatValue(best)}</span>}
          </>
        );
      },
      <BestChoice key={name} name={name} direction={direction} />,
    ]);
  }
  return (
    <SideBySide title="Results" jobs={jobs}>
      {rows.map(([name, show, choice]) => (
        <tr key={name}>
          <th scope="row">
            {name}
            {choice}
          </th>
          {compared.map((one) => (
            <td key={one.job.id}>{show(one)}</td>
          ))}
        </tr>
      ))}
    </SideBySide>
  );
}

const DIRECTIONS: readonly { value: Direction | "none"; label: string }[] = [
  { value: "lower", label: "best: lowest" },
  { value: "higher", label: "best: highest" },
  { value: "none", label: "no best value" },
];

/** A choice of which value of a metric is the best one; it is kept in the address. */
function BestChoice({ name, direction }: { name: string; direction: Direction | null }) {
  const choose = (value: string) => {
    const { path, query } = readRoute(window.location.hash);
    const others = query.getAll("best").filter((told) => told.slice(0, told.lastIndexOf(":")) !== name);
    query.delete("best");
    for (const told of others) query.append("best", told);
    if (value !== (knownDirection(name) ?? "none")) query.append("best", `${name}:${value}`);
    go(path, query, true);
  };
  return (
    <select
      className="input input-small compare-best"
      aria-label={`Best value of ${name}`}
      value={direction ?? "none"}
      onChange={(event) => choose(event.currentTarget.value)}
    >
      {DIRECTIONS.map(({ value, label }) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}

interface FactsProps {
  jobs: readonly Job[];
  facts: readonly { name: string; values: readonly (string | null)[]; differs: boolean }[];
}

/** The configurations of the jobs; differences are highlighted. */
export function FactsTable({ jobs, facts }: FactsProps) {
  const [isOnly, setOnly] = useState(jobs.length > 1);
  const shown = facts.filter((fact) => !isOnly || fact.differs);
  return (
    <SideBySide
      title="Configuration"
      jobs={jobs}
      tools={<CheckField label="Show differences only" isOn={isOnly} onValue={setOnly} />}
    >
      {shown.map((fact) => (
        <tr key={fact.name} className={fact.differs && !isOnly ? "compare-differs" : undefined}>
          <th scope="row">{fact.name}</th>
          {fact.values.map((value, place) => (
            <td key={jobs[place]?.id}>{value ?? <span className="quiet">not set</span>}</td>
          ))}
        </tr>
      ))}
      {shown.length === 0 && (
        <tr>
          <td colSpan={jobs.length + 1} className="quiet">
            No differences.
          </td>
        </tr>
      )}
    </SideBySide>
  );
}
