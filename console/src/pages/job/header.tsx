/** The head of a job: state and reason, how far it is, what it has, and what can be done with it. */

import { useState } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { countOf } from "@/format/numbers";
import { formatFullTime } from "@/format/time";
import { pauseJob, resumeJob, useDoToJobs } from "@/jobs/changes";
import { BelongsDialog, CloneDialog, PriorityDialog, ResizeDialog, StopDialog } from "@/jobs/dialogs";
import { canDo, isOfPlatform, sayInexact } from "@/jobs/facts";
import { usePositions } from "@/jobs/waiting";
import { useProjectNames } from "@/pages/job-list/project-names";
import { Button, CopyButton } from "@/parts/button";
import { Swatch } from "@/parts/colour";
import { Menu } from "@/parts/menu";
import { Ago } from "@/parts/now";
import { ENDED, StageBadge } from "@/parts/stage";
import { Note } from "@/parts/states";
import { Link } from "@/router/router";
import { mayChange, maySubmit, useSession } from "@/session/session";
import { Figures } from "./figures";

type Asking = "stop" | "priority" | "belongs" | "resize" | "clone";

/** The head. */
export function JobHeader({ job }: { job: Job }) {
  const session = useSession();
  const doTo = useDoToJobs();
  const [asking, setAsking] = useState<Asking | null>(null);
  const may = mayChange(session, job.owner);
  const isOver = ENDED.has(job.stage);
  const close = () => setAsking(null);
  const inexact = sayInexact(job);
  const position = usePositions(job.stage === "queued").get(job.id);
  const labels = Object.entries(job.labels);
  return (
    <header className="job-head">
      <div className="job-title">
        <div className="grow">
          <nav className="small quiet job-path" aria-label="Breadcrumb">
            <Link to="/jobs">Jobs</Link>
          </nav>
          <h1 className="job-name">
            <Swatch id={job.id} />
            <span>{job.name}</span>
            <StageBadge stage={job.stage} />
          </h1>
          <p className="soft small job-id">
            <code>{job.id}</code>
            <CopyButton text={job.id} what="the ID" />
            <span title={formatFullTime(job.submitted_at)}>
              submitted <Ago time={job.submitted_at} />
            </span>
            <span>
              by{" "}
              <Link to="/jobs" query={{ owner: job.owner }} title={`Jobs of ${job.owner}`}>
                {job.owner}
              </Link>
            </span>
            <span>queue {job.queue}</span>
            <Belongs job={job} />
            {job.attempt > 1 && <span>attempt {job.attempt}</span>}
            <LabelChips labels={labels.filter(([name]) => !isOfPlatform(name))} />
          </p>
          {labels.some(([name]) => isOfPlatform(name)) && (
            <details className="small job-labels">
              <summary>{countOf(labels.filter(([name]) => isOfPlatform(name)).length, "WMLA label")}</summary>
              <LabelChips labels={labels.filter(([name]) => isOfPlatform(name))} />
            </details>
          )}
        </div>
        <div className="row row-wrap job-actions">
          {may && !isOver && (
            <>
              {canDo("resume", job) ? (
                <Button icon="play" look="main" onClick={() => void doTo([job], "Resumed", resumeJob)}>
                  Resume
                </Button>
              ) : (
                job.stage !== "stopping" && (
                  <Button
                    icon="pause"
                    disabled={!canDo("pause", job)}
                    onClick={() => void doTo([job], "Pausing", pauseJob)}
                  >
                    Pause
                  </Button>
                )
              )}
              {canDo("resize", job) && (
                <Button icon="resize" onClick={() => setAsking("resize")}>
                  Resize
                </Button>
              )}
              <Button icon="stop" isBad onClick={() => setAsking("stop")}>
                {job.stage === "stopping" ? "Stop now" : "Stop"}
              </Button>
            </>
          )}
          {maySubmit(session) && (
            <Button icon="copy" onClick={() => setAsking("clone")}>
              Clone
            </Button>
          )}
          {may && (
            <Menu
              label={null}
              name="More actions"
              icon="dots"
              items={[
                {
                  label: "Priority…",
                  icon: "arrowUp",
                  isOff: !canDo("priority", job),
                  onPick: () => setAsking("priority"),
                },
                {
                  label: isOver ? "Notes and labels…" : "Notes, labels and queue…",
                  icon: "flag",
                  onPick: () => setAsking("belongs"),
                },
              ]}
            />
          )}
        </div>
      </div>
      {job.stage === "failed" ? (
        <Note tone="bad">
          {capitalize(job.reason)}{" "}
          <Link to={`/jobs/${job.id}`} query={{ tab: "logs" }}>
            Show logs
          </Link>
        </Note>
      ) : (
        <p className="job-reason">
          {sayReason(job)}
          {position && ` Position ${position} in queue ${job.queue}.`}
        </p>
      )}
      {job.notes && (
        <p className="job-notes">
          <span className="only-heard">Notes: </span>
          {job.notes}
        </p>
      )}
      {inexact !== null && (
        <Note tone="warn">
          {capitalize(inexact)}, and may differ from that of one worker.{" "}
          <Link to={`/jobs/${job.id}`} query={{ tab: "charts" }}>
            Show events
          </Link>
        </Note>
      )}
      <Figures job={job} />
      {asking === "stop" && <StopDialog jobs={[job]} onClose={close} />}
      {asking === "priority" && <PriorityDialog jobs={[job]} onClose={close} />}
      {asking === "belongs" && <BelongsDialog job={job} onClose={close} />}
      {asking === "resize" && <ResizeDialog job={job} onClose={close} />}
      {asking === "clone" && <Clone job={job} onClose={close} />}
    </header>
  );
}

function LabelChips({ labels }: { labels: readonly (readonly [string, string])[] }) {
  return labels.map(([name, value]) => (
    <Link key={name} to="/jobs" query={{ label: `${name}=${value}` }} className="chip">
      {name}={value}
    </Link>
  ));
}

/** The project and the experiment of a job, for those who see them. */
function Belongs({ job }: { job: Job }) {
  const projects = useProjectNames();
  const project = job.project && projects.get(job.project);
  if (!project) return null;
  return (
    <>
      <span>
        project <Link to={`/projects/${job.project}`}>{project}</Link>
      </span>
      {job.experiment && <Link to={`/experiments/${job.experiment}`}>experiment</Link>}
    </>
  );
}

/** Return why a job is as it is, in sentences; a repeated reason is written once. */
export function sayReason(job: Pick<Job, "stage" | "reason" | "decided_reason">): string {
  const decided = ENDED.has(job.stage) || job.reason.includes(job.decided_reason ?? "") ? null : job.decided_reason;
  const told = [job.reason, decided].filter((each) => each !== null && each !== "");
  return told.map((each) => `${capitalize(each ?? "")}.`).join(" ");
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function Clone({ job, onClose }: { job: Job; onClose: () => void }) {
  const spec = useAsk(["job", job.id], "/jobs/{job}/spec", { path: { job: job.id } });
  return spec.data ? <CloneDialog job={job} spec={spec.data} onClose={onClose} /> : null;
}
