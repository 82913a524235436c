/** The columns of the table of jobs. */

import type { Job } from "@/api/types";
import { formatShare, formatShort, formatValue } from "@/format/numbers";
import { formatDuration, formatRough } from "@/format/time";
import {
  isOfPlatform,
  mayHavePaused,
  sayInexact,
  saySlots,
  secondsLeft,
  secondsRun,
  secondsWaited,
  shareDone,
  tellReason,
} from "@/jobs/facts";
import { type Positions, reasonToWait } from "@/jobs/waiting";
import { Button } from "@/parts/button";
import { jobColour, Swatch } from "@/parts/colour";
import { Ago, useNow } from "@/parts/now";
import { Meter, SlotBar, type StepLine, StepSpark } from "@/parts/slots";
import { ENDED, StageBadge } from "@/parts/stage";
import type { Column } from "@/parts/table";
import { Link } from "@/router/router";
import { type Extra, nameOf } from "./chosen-columns";
import { sayExtra } from "./columns-dialog";
import type { Values } from "./use-values";

/** The time that the small bars of slots show. */
export const SPARK_S = 1800;

export interface JobsTell {
  lines: ReadonlyMap<string, StepLine>;
  numSlots: number;
  projects: ReadonlyMap<string, string>;
  /** Positions of waiting jobs in their queues, by job. */
  positions: Positions;
  /** Reasons that are shown once above the table. */
  common: ReadonlyMap<string, number>;
  /** Columns that the user has added, and what is known for them. */
  extras: readonly Extra[];
  values: Values;
  /** Opens the dialog for notes and labels; null: this user may not change the job. */
  onNotes: (job: Job) => (() => void) | null;
}

/** Return the columns of a narrow screen: one with all that matters, and the menu. */
export function makeNarrowColumns(tell: JobsTell, menu: (job: Job) => React.ReactNode): Column<Job>[] {
  const whole: Column<Job> = {
    name: "name",
    title: "Job",
    width: 200,
    grows: 1,
    show: (job) => (
      <div className="jobs-narrow">
        <Name job={job} />
        <div className="row row-wrap jobs-narrow-row">
          <StageBadge stage={job.stage} />
          <span className="small number">{sayWithWord(saySlots(job))}</span>
          {job.progress?.loss != null && <span className="small number">loss {formatShort(job.progress.loss)}</span>}
        </div>
        <Reason job={job} tell={tell} />
        {tell.extras.length > 0 && (
          <div className="small cut jobs-narrow-extras">
            {tell.extras.toSorted(shortFirst).map((extra) => (
              <span key={nameOf(extra)}>
                <span className="quiet">{sayExtra(extra)}</span> {sayValue(readValue(extra, job, tell.values))}
              </span>
            ))}
          </div>
        )}
      </div>
    ),
    sortBy: (job) => job.name,
  };
  const title = <span className="only-heard">Actions</span>;
  return [whole, { name: "menu", title, width: 58, isEnd: true, show: menu }];
}

/** Return the columns; those with a higher `leaves` go first where there is no room. */
export function makeColumns(tell: JobsTell, menu: (job: Job) => React.ReactNode): Column<Job>[] {
  const columns: Column<Job>[] = [
    {
      name: "name",
      title: "Name",
      width: 116,
      wants: 220,
      grows: 3,
      show: (job) => <Name job={job} />,
      sortBy: (job) => job.name,
    },
    {
      name: "owner",
      title: "Owner",
      width: 84,
      grows: 0.5,
      leaves: 4,
      show: (job) => job.owner,
      sortBy: (job) => job.owner,
    },
    {
      name: "project",
      title: "Project",
      width: 92,
      grows: 0.6,
      leaves: 8,
      show: (job) => <Project job={job} names={tell.projects} />,
      sortBy: (job) => (job.project ? (tell.projects.get(job.project) ?? null) : null),
    },
    {
      name: "stage",
      title: "State",
      width: 118,
      wants: 190,
      grows: 4,
      show: (job) => <State job={job} tell={tell} />,
      sortBy: (job) => job.stage,
    },
    {
      name: "slots",
      title: "Slots",
      width: 90,
      grows: 0.4,
      show: (job) => <Slots job={job} />,
      sortBy: (job) => job.num_slots,
    },
    {
      name: "history",
      title: "Last 30 min",
      width: 108,
      leaves: 5,
      show: (job) => <History job={job} tell={tell} />,
    },
    {
      name: "progress",
      title: "Progress",
      width: 136,
      leaves: 2,
      show: (job) => <Progress job={job} />,
      sortBy: shareDone,
    },
    {
      name: "loss",
      title: "Loss",
      width: 76,
      isEnd: true,
      leaves: 3,
      show: (job) => <span className="number">{formatShort(job.progress?.loss)}</span>,
      sortBy: (job) => job.progress?.loss ?? null,
    },
    {
      name: "priority",
      title: "Priority",
      width: 76,
      isEnd: true,
      leaves: 7,
      show: (job) => job.priority,
      sortBy: (job) => job.priority,
    },
    {
      name: "wait",
      title: "Waited",
      width: 92,
      isEnd: true,
      leaves: 9,
      show: (job) => <Lasting job={job} measure={secondsWaited} />,
      sortBy: (job) => secondsWaited(job, Date.now() / 1000),
    },
    {
      name: "runtime",
      title: "Runtime",
      width: 116,
      isEnd: true,
      leaves: 6,
      show: (job) => <RunTime job={job} />,
      sortBy: (job) => secondsRun(job, Date.now() / 1000),
    },
    ...tell.extras.map((extra) => makeExtra(extra, tell)),
    { name: "menu", title: <span className="only-heard">Actions</span>, width: 58, isEnd: true, leaves: 1, show: menu },
  ];
  return tell.projects.size ? columns : columns.filter((column) => column.name !== "project");
}

/** Numbers first: notes and labels may need all of the line. */
function shortFirst(one: Extra, other: Extra): number {
  return Number(!one.of) - Number(!other.of);
}

function sayWithWord(slots: string): string {
  return /^(\d+ of )?1$/.test(slots) ? `${slots} slot` : `${slots} slots`;
}

/** Return a column that the user has added. It does not leave: users can scroll the table. */
function makeExtra(extra: Extra, tell: JobsTell): Column<Job> {
  const isText = extra.kind === "notes" || extra.kind === "labels";
  return {
    name: nameOf(extra),
    title: isText ? sayExtra(extra) : <span title={`${extra.kind} ${extra.of}`}>{extra.of}</span>,
    width: isText ? 150 : 96,
    grows: isText ? 2 : 0,
    isEnd: extra.kind === "metric",
    show: (job) => {
      const told = sayValue(readValue(extra, job, tell.values));
      return isText ? (
        <NotesCell job={job} told={told} onNotes={tell.onNotes(job)} what={sayExtra(extra).toLowerCase()} />
      ) : (
        <div className="number cut" title={told}>
          {told}
        </div>
      );
    },
    sortBy: (job) => readValue(extra, job, tell.values) ?? null,
  };
}

/** Return what stands in a column; null: the value of the metric was not finite; undefined: the job has none. */
function readValue({ kind, of }: Extra, job: Job, values: Values): string | number | null | undefined {
  if (kind === "notes") return job.notes || undefined;
  if (kind === "labels") {
    const labels = Object.entries(job.labels).filter(([name]) => !isOfPlatform(name));
    return labels.map(sayLabel).sort().join(", ") || undefined;
  }
  const known = values.get(job.id);
  // Not by [] alone: every object has a `constructor`.
  if (kind === "metric") return known && Object.hasOwn(known.metrics, of) ? known.metrics[of] : undefined;
  const given = known && Object.hasOwn(known.parameters, of) ? known.parameters[of] : undefined;
  return typeof given === "boolean" ? String(given) : given;
}

function sayLabel([name, value]: [string, string]): string {
  return value ? `${name}=${value}` : name;
}

function sayValue(value: string | number | null | undefined): string {
  if (value === undefined) return "–";
  if (value === null) return "not finite";
  return typeof value === "string" ? value : formatValue(value);
}

/** Notes or labels of a job, with a button that changes them. */
function NotesCell({
  job,
  told,
  onNotes,
  what,
}: {
  job: Job;
  told: string;
  onNotes: (() => void) | null;
  what: string;
}) {
  return (
    <div className="jobs-notes">
      <span className={told === "–" ? "quiet cut" : "cut"} title={told}>
        {told}
      </span>
      {onNotes && (
        <Button icon="edit" look="plain" isSmall aria-label={`Edit ${what} of ${job.name}`} onClick={onNotes} />
      )}
    </div>
  );
}

function Project({ job, names }: { job: Job; names: JobsTell["projects"] }) {
  const name = job.project === null ? null : names.get(job.project);
  if (name) return name;
  return <span className="quiet">{name === null ? "–" : "not visible"}</span>;
}

function Name({ job }: { job: Job }) {
  return (
    <div className="jobs-name">
      <Swatch id={job.id} />
      <div className="grow">
        <Link to={`/jobs/${job.id}`} className="jobs-link cut" title={job.name}>
          {job.name}
        </Link>
        <div className="quiet small cut">
          {job.id} · <Ago time={job.submitted_at} />
        </div>
      </div>
    </div>
  );
}

function State({ job, tell }: { job: Job; tell: JobsTell }) {
  return (
    <div>
      <StageBadge stage={job.stage} />
      {sayInexact(job) !== null && <span className="chip tone-warn">not exact</span>}
      <Reason job={job} tell={tell} />
    </div>
  );
}

/** Why a job is as it is. Of a waiting one first its position, and alone where its reason stands above the table. */
function Reason({ job, tell }: { job: Job; tell: JobsTell }) {
  const isDecided = job.stage === "running" || job.stage === "queued";
  const position = job.stage === "queued" ? tell.positions.get(job.id) : undefined;
  const isCommon = tell.common.has(reasonToWait(job) ?? "");
  const reason = tellReason(job, (isDecided && job.decided_reason) || job.reason);
  const told = [
    ...(position === undefined ? [] : [`${position} in queue ${job.queue}`]),
    ...(isCommon ? [] : [reason]),
  ];
  return (
    <div className="quiet small cut jobs-reason" title={isDecided ? reason : tellReason(job)}>
      {told.join(" · ") || "see above"}
    </div>
  );
}

function Slots({ job }: { job: Job }) {
  const isOver = ENDED.has(job.stage);
  return (
    <div className={isOver ? "quiet" : undefined}>
      <div className="number">{saySlots(job)}</div>
      {!isOver && (
        <SlotBar num={job.num_slots} min={job.min_workers} max={job.max_workers} colour={jobColour(job.id)} />
      )}
    </div>
  );
}

function History({ job, tell }: { job: Job; tell: JobsTell }) {
  const now = useNow();
  const line = tell.lines.get(job.id);
  if (!line) return null;
  return (
    <StepSpark
      line={line}
      since={now - SPARK_S}
      until={now}
      max={Math.max(tell.numSlots, 1)}
      colour={jobColour(job.id)}
    />
  );
}

function Progress({ job }: { job: Job }) {
  const now = useNow();
  const share = shareDone(job);
  const step = job.progress?.step ?? null;
  if (share === null && step === null) return <span className="quiet">–</span>;
  const left = secondsLeft(job, now);
  const told = share === null ? `step ${step}` : formatShare(share);
  return (
    <div className="jobs-progress">
      <div className="small number cut">
        {told}
        {left !== null && <span className="quiet"> · {formatRough(left)} left</span>}
      </div>
      {share !== null && <Meter share={share} label={`Progress of ${job.name}`} colour={jobColour(job.id)} />}
    </div>
  );
}

/** How long a job ran, or runs by now. */
export function RunTime({ job }: { job: Job }) {
  const lasting = <Lasting job={job} measure={secondsRun} />;
  if (!mayHavePaused(job)) return lasting;
  return (
    <span title="Time since its first start, pauses included. The job page shows the runtime without pauses.">
      ≤ {lasting}
    </span>
  );
}

function Lasting({ job, measure }: { job: Job; measure: (job: Job, now: number) => number | null }) {
  const now = useNow();
  return <>{formatDuration(measure(job, now))}</>;
}
