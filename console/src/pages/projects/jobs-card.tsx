/** Jobs of a project, an experiment or a definition, live, with a choice of those to compare. */

import { useMemo, useState } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { formatValue } from "@/format/numbers";
import { saySlots, secondsRun, tellReason } from "@/jobs/facts";
import { RunTime } from "@/pages/job-list/columns";
import { Button } from "@/parts/button";
import { Card } from "@/parts/card";
import { jobColour, Swatch } from "@/parts/colour";
import { Ago } from "@/parts/now";
import { SlotBar } from "@/parts/slots";
import { ENDED, StageBadge } from "@/parts/stage";
import { Answered, Empty } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { go, Link } from "@/router/router";

const COLUMNS: Column<Job>[] = [
  {
    name: "name",
    title: "Job",
    width: 150,
    grows: 3,
    sortBy: (job) => job.name,
    show: (job) => (
      <span className="row">
        <Swatch id={job.id} />
        <Link to={`/jobs/${job.id}`} className="cut" title={`${job.name} (${job.id})`}>
          {job.name}
        </Link>
      </span>
    ),
  },
  {
    name: "owner",
    title: "Owner",
    width: 90,
    grows: 1,
    leaves: 2,
    sortBy: (job) => job.owner,
    show: (job) => job.owner,
  },
  {
    name: "stage",
    title: "State",
    width: 126,
    sortBy: (job) => job.stage,
    show: (job) => <StageBadge stage={job.stage} title={tellReason(job)} />,
  },
  {
    name: "slots",
    title: "Slots",
    width: 150,
    leaves: 3,
    sortBy: (job) => job.num_slots,
    // A job that has ended has no slots: the numbers that it might have say more.
    show: (job) =>
      ENDED.has(job.stage) ? (
        <span className="number quiet">{saySlots(job)}</span>
      ) : (
        <span className="row">
          <SlotBar num={job.num_slots} min={job.min_workers} max={job.max_workers} colour={jobColour(job.id)} />
          <span className="number quiet">
            {job.num_slots} of {job.max_workers}
          </span>
        </span>
      ),
  },
  {
    name: "loss",
    title: "Loss",
    width: 80,
    isEnd: true,
    leaves: 4,
    sortBy: (job) => job.progress?.loss ?? null,
    show: (job) => formatValue(job.progress?.loss),
  },
  {
    name: "time",
    title: "Runtime",
    width: 118,
    isEnd: true,
    leaves: 5,
    sortBy: (job) => secondsRun(job, Date.now() / 1000),
    show: (job) => <RunTime job={job} />,
  },
  {
    name: "submitted",
    title: "Submitted",
    width: 100,
    leaves: 6,
    sortBy: (job) => job.submitted_at,
    show: (job) => (
      <span className="quiet">
        <Ago time={job.submitted_at} />
      </span>
    ),
  },
];

const keyOf = (job: Job) => job.id;
const MAX_JOBS = 200;

interface JobsCardProps {
  of: { project: string } | { experiment: string } | { definition: string };
  /** Said where there are none. */
  hint: string;
}

/** The card with the table. */
export function JobsCard({ of, hint }: JobsCardProps) {
  const asked = useAsk(["jobs"], "/jobs", { query: { ...of, limit: MAX_JOBS } }, { every_s: 5 });
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const known = useMemo(() => new Set((asked.data?.items ?? []).map(keyOf)), [asked.data]);
  const compared = [...chosen].filter((id) => known.has(id));
  return (
    <Card
      title="Jobs"
      isFlush
      className="list-card list-jobs"
      tools={
        <>
          {asked.data?.after && (
            <Link to="/jobs" query={of}>
              All jobs
            </Link>
          )}
          <Button
            icon="compare"
            isSmall
            disabled={compared.length < 2}
            title={compared.length < 2 ? "Select at least two jobs" : undefined}
            onClick={() => go("/compare", { job: compared })}
          >
            Compare{compared.length > 1 ? ` ${compared.length}` : ""}
          </Button>
        </>
      }
    >
      <Answered asked={asked} what="the jobs">
        {(answer) => (
          <Table
            label="Jobs"
            rows={answer.items}
            columns={COLUMNS}
            keyOf={keyOf}
            onOpen={(job) => go(`/jobs/${job.id}`)}
            chosen={chosen}
            onChoose={setChosen}
            empty={
              <Empty icon="play" title="No jobs yet">
                {hint}
              </Empty>
            }
          />
        )}
      </Answered>
    </Card>
  );
}
