/** Who has how many slots right now, of how many at most: one row for each job that has not ended. */

import { useMemo } from "react";
import type { Job } from "@/api/types";
import { formatShare } from "@/format/numbers";
import { formatFullTime } from "@/format/time";
import { shareDone } from "@/jobs/facts";
import { tellApart } from "@/jobs/names";
import { jobColour, Swatch } from "@/parts/colour";
import { Ago } from "@/parts/now";
import { Meter, SlotBar } from "@/parts/slots";
import { StageBadge } from "@/parts/stage";
import { Empty } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { go, Link } from "@/router/router";

interface ActiveJobsProps {
  jobs: readonly Job[];
  /** What a slot is called: "GPU slots", or "Slots" where the pool has no GPU. */
  slotWord: string;
  maySubmit: boolean;
}

function makeColumns(slotWord: string, called: ReadonlyMap<string, string>): Column<Job>[] {
  return [
    {
      name: "name",
      title: "Job",
      width: 150,
      grows: 3,
      sortBy: (job) => job.name,
      show: (job) => (
        <span className="row">
          <Swatch id={job.id} />
          <Link to={`/jobs/${job.id}`} className="cut" title={called.get(job.id)}>
            {called.get(job.id)}
          </Link>
        </span>
      ),
    },
    {
      name: "owner",
      title: "Owner",
      width: 86,
      grows: 1,
      leaves: 2,
      sortBy: (job) => job.owner,
      show: (job) => job.owner,
    },
    {
      name: "stage",
      title: "State",
      width: 122,
      leaves: 3,
      sortBy: (job) => job.stage,
      show: (job) => <StageBadge stage={job.stage} title={job.reason} />,
    },
    {
      name: "slots",
      title: slotWord,
      width: 150,
      grows: 1,
      sortBy: (job) => job.num_slots,
      show: (job) => <SlotsNow job={job} />,
    },
    {
      name: "progress",
      title: "Progress",
      width: 96,
      grows: 1,
      leaves: 4,
      sortBy: shareDone,
      show: (job) => <ProgressNow job={job} />,
    },
    {
      name: "since",
      title: "State since",
      width: 108,
      leaves: 5,
      sortBy: (job) => job.staged_at,
      show: (job) => (
        <span className="quiet" title={formatFullTime(job.staged_at)}>
          <Ago time={job.staged_at} />
        </span>
      ),
    },
  ];
}

function SlotsNow({ job }: { job: Job }) {
  const next = job.decided_slots;
  const changes = next !== null && next !== job.num_slots;
  return (
    <span className="row" data-job={job.id} data-slots={job.num_slots} data-max={job.max_workers}>
      <SlotBar num={job.num_slots} min={job.min_workers} max={job.max_workers} colour={jobColour(job.id)} />
      <span className="number nowrap">
        <strong>{job.num_slots}</strong> of {job.max_workers}
      </span>
      {changes && (
        <span className="quiet small nowrap" title={job.decided_reason ?? ""}>
          → {next}
        </span>
      )}
    </span>
  );
}

function ProgressNow({ job }: { job: Job }) {
  const share = shareDone(job);
  if (share === null)
    return <span className="quiet">{job.progress?.step == null ? "–" : `step ${job.progress.step}`}</span>;
  return (
    <div className="row">
      <div className="grow">
        <Meter share={share} label={`Progress of ${job.name}`} colour={jobColour(job.id)} />
      </div>
      <span className="number small quiet">{formatShare(share)}</span>
    </div>
  );
}

const keyOf = (job: Job) => job.id;
const open = (job: Job) => go(`/jobs/${job.id}`);
const ORDER = ["running", "starting", "pausing", "stopping", "paused", "queued"];

/** Return jobs as they are shown: who has slots first, the oldest on top. */
export function orderActive(jobs: readonly Job[]): Job[] {
  return jobs.toSorted(
    (one, other) =>
      Number(other.num_slots > 0) - Number(one.num_slots > 0) ||
      ORDER.indexOf(one.stage) - ORDER.indexOf(other.stage) ||
      one.submitted_at - other.submitted_at,
  );
}

/** The table. */
export function ActiveJobs({ jobs, slotWord, maySubmit }: ActiveJobsProps) {
  const columns = useMemo(() => makeColumns(slotWord, tellApart(jobs)), [slotWord, jobs]);
  const rows = useMemo(() => orderActive(jobs), [jobs]);
  return (
    <Table
      label="Active jobs"
      rows={rows}
      columns={columns}
      keyOf={keyOf}
      onOpen={open}
      empty={
        <Empty icon="pool" title="No active jobs" action={maySubmit && <Link to="/submit">New experiment</Link>}>
          All slots are free.
        </Empty>
      }
    />
  );
}
