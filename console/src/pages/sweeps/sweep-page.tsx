/** One sweep: its trials, and a picture of the metric over each parameter. */

import { useMemo, useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import type { Stage, Sweep, Trial, Tunable } from "@/api/types";
import { formatShort, formatValue } from "@/format/numbers";
import { useOutdate } from "@/pages/projects/project-data";
import { Button } from "@/parts/button";
import { Card } from "@/parts/card";
import { ConfirmDialog } from "@/parts/confirm";
import { Ago } from "@/parts/now";
import { StageBadge } from "@/parts/stage";
import { Answered, Empty, Note } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { go, Link, type PageProps } from "@/router/router";
import { mayChange, maySubmit, useSession } from "@/session/session";
import { SaveDialog } from "./save-dialog";
import { type Dot, metricOf, placeTrials } from "./scatter";
import { CloneSweepDialog } from "./sweep-dialog";
import { countTrials } from "./sweeps-page";
import "@/pages/projects/projects.css";
import "./sweeps.css";

/** The page. */
export default function SweepPage({ names }: PageProps) {
  const id = names.sweep ?? "";
  const path = { sweep: id };
  const sweep = useAsk(["sweeps", id], "/sweeps/{sweep}", { path }, { every_s: 3 });
  const trials = useAsk(["sweeps", id], "/sweeps/{sweep}/trials", { path }, { every_s: 3 });
  return (
    <div className="page">
      <Answered asked={sweep} what="the sweep">
        {(found) => (
          <>
            <Head sweep={found} best={trials.data?.items.find((trial) => trial.number === found.best)} />
            <Answered asked={trials} what="the trials">
              {(answer) => <Trials sweep={found} trials={answer.items} />}
            </Answered>
          </>
        )}
      </Answered>
    </div>
  );
}

function Head({ sweep, best }: { sweep: Sweep; best: Trial | undefined }) {
  const session = useSession();
  const outdate = useOutdate();
  const [isStopping, setStopping] = useState(false);
  const [isSaving, setSaving] = useState(false);
  const [isCloning, setCloning] = useState(false);
  const isMine = mayChange(session, sweep.owner);
  return (
    <>
      <div className="page-head">
        <div className="page-title">
          <span className="small">
            <Link to="/sweeps">Sweeps</Link>
          </span>
          <h1>{sweep.name}</h1>
        </div>
        <StageBadge stage={sweep.stage as Stage} />
        {best && maySubmit(session) && <Button onClick={() => setSaving(true)}>Save best as definition</Button>}
        {maySubmit(session) && <Button onClick={() => setCloning(true)}>Clone</Button>}
        {isMine && sweep.stage === "running" && (
          <Button icon="stop" onClick={() => setStopping(true)}>
            Stop
          </Button>
        )}
      </div>
      <Note tone={sweep.stage === "failed" ? "bad" : "info"}>{sweep.reason}</Note>
      <dl className="facts-line">
        <Fact name="Trials">{`${countTrials(sweep)} of ${sweep.num_trials}`}</Fact>
        <Fact name="Metric">{`${sweep.metric.name} (${sweep.metric.direction})`}</Fact>
        <Fact name="Search">{sweep.search}</Fact>
        <Fact name="Pruning">{sweep.pruning?.method ?? "none"}</Fact>
        <Fact name="Best trial">{sweep.best ?? "none yet"}</Fact>
        <div>
          <dt>Started by</dt>
          <dd>
            {sweep.owner}, <Ago time={sweep.created_at} />
          </dd>
        </div>
      </dl>
      {isSaving && best && <SaveDialog sweep={sweep} trial={best} onClose={() => setSaving(false)} />}
      {isCloning && <CloneSweepDialog sweep={sweep} onClose={() => setCloning(false)} />}
      {isStopping && (
        <ConfirmDialog
          title={`Stop sweep ${sweep.name}?`}
          action="Stop sweep"
          onDo={async () => {
            await ask("post", "/sweeps/{sweep}/stop", { path: { sweep: sweep.id } });
            await outdate("sweeps");
          }}
          onClose={() => setStopping(false)}
        >
          Its jobs stop, each with a checkpoint. It cannot be resumed.
        </ConfirmDialog>
      )}
    </>
  );
}

function Fact({ name, children }: { name: string; children: string | number }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const keyOf = (trial: Trial) => String(trial.number);

function Trials({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const columns = useMemo(() => makeColumns(sweep), [sweep]);
  return (
    <>
      <div className="scatters">
        {Object.entries(sweep.parameters).map(([name, tunable]) => (
          <Card key={name} title={`${sweep.metric.name} by ${name}`}>
            <Picture name={name} tunable={tunable} sweep={sweep} trials={trials} />
          </Card>
        ))}
      </div>
      <section className="card" aria-label="Trials">
        <Table
          label="Trials"
          rows={trials}
          columns={columns}
          keyOf={keyOf}
          onOpen={(trial) => go(`/jobs/${trial.job}`)}
          empty={<Empty title="No trials yet">The first trials start in a moment.</Empty>}
        />
      </section>
    </>
  );
}

function makeColumns(sweep: Sweep): Column<Trial>[] {
  return [
    {
      name: "number",
      title: "Trial",
      width: 96,
      sortBy: (trial) => trial.number,
      show: (trial) => (
        <Link to={`/jobs/${trial.job}`} title={trial.reason ?? trial.job}>
          {trial.number}
          {trial.number === sweep.best && " (best)"}
        </Link>
      ),
    },
    {
      name: "state",
      title: "State",
      width: 92,
      sortBy: (trial) => trial.state,
      show: (trial) => <span title={trial.reason ?? undefined}>{nameState(trial)}</span>,
    },
    {
      name: "value",
      title: sweep.metric.name,
      width: 92,
      isEnd: true,
      sortBy: metricOf,
      show: (trial) => formatValue(metricOf(trial)),
    },
    ...listNames(sweep).map(
      (name, at): Column<Trial> => ({
        name: `parameter-${name}`,
        title: name,
        width: 92,
        isEnd: true,
        leaves: at + 2,
        sortBy: (trial) => sortable(trial.parameters[name]),
        show: (trial) => showParameter(trial.parameters[name]),
      }),
    ),
    {
      name: "reason",
      title: "Reason",
      width: 160,
      grows: 1,
      leaves: 1,
      show: (trial) => <span title={trial.reason ?? undefined}>{trial.reason}</span>,
    },
  ];
}

/** The names of all parameters that the trials may have. */
function listNames(sweep: Sweep): string[] {
  const resource = sweep.pruning?.parameter ?? null;
  const listed = (sweep.points ?? []).flatMap((point) => Object.keys(point));
  const names = [...Object.keys(sweep.parameters), ...listed, ...(resource === null ? [] : [resource])];
  return [...new Set(names)];
}

/** The state of a trial; of a running one the stage of its job. */
function nameState(trial: Trial): string {
  return trial.state === "running" ? (trial.job_stage ?? trial.state) : trial.state;
}

type Parameter = Trial["parameters"][string] | undefined;

function sortable(value: Parameter): number | string | null {
  return typeof value === "boolean" ? String(value) : (value ?? null);
}

function showParameter(value: Parameter): string {
  return typeof value === "number" ? formatValue(value) : String(value ?? "");
}

const WIDTH = 320;
const HEIGHT = 150;
const LEFT = 48;
const EDGE = 8;
const FOOT = 22;

interface PictureProps {
  name: string;
  tunable: Tunable;
  sweep: Sweep;
  trials: readonly Trial[];
}

function Picture({ name, tunable, sweep, trials }: PictureProps) {
  const { dots, ticks, low, high } = placeTrials(trials, name, tunable);
  if (dots.length === 0) return <p className="quiet">No trial has a value yet.</p>;
  const xOf = (x: number) => LEFT + x * (WIDTH - LEFT - 2 * EDGE);
  const yOf = (y: number) => HEIGHT - FOOT - EDGE - y * (HEIGHT - FOOT - 2 * EDGE);
  const say = (dot: Dot) =>
    `trial ${dot.trial.number}: ${sweep.metric.name} ${formatValue(dot.value)}, ${nameState(dot.trial)}`;
  return (
    <svg
      className="scatter"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={`${sweep.metric.name} by ${name}`}
    >
      <path d={`M${LEFT - EDGE} ${EDGE}V${HEIGHT - FOOT}H${WIDTH - EDGE}`} />
      <text x={LEFT - 12} y={yOf(high > low ? 1 : 0.5) + 4} textAnchor="end">
        {formatShort(high)}
      </text>
      {high > low && (
        <text x={LEFT - 12} y={yOf(0) + 4} textAnchor="end">
          {formatShort(low)}
        </text>
      )}
      {ticks.map((tick) => (
        <text key={tick.label} x={xOf(tick.x)} y={HEIGHT - 6} textAnchor="middle">
          {tick.label}
        </text>
      ))}
      {dots.map((dot) => (
        <circle
          key={dot.trial.number}
          className={dot.trial.number === sweep.best ? "best" : dot.trial.state}
          cx={xOf(dot.x)}
          cy={yOf(dot.y)}
          r={dot.trial.number === sweep.best ? 5 : 3.5}
        >
          <title>{say(dot)}</title>
        </circle>
      ))}
    </svg>
  );
}
