/** The head of a run: state and reason, how far it is, what it has, and what can be done with it. */

import { type ReactNode, useState } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { formatCount, formatShare, formatValue } from "@/format/numbers";
import { formatDuration, formatFullTime } from "@/format/time";
import { pauseJob, resumeJob, useDoToJobs } from "@/jobs/changes";
import { BelongsDialog, CloneDialog, PriorityDialog, ResizeDialog, StopDialog } from "@/jobs/dialogs";
import { canDo, saySlots, secondsLeft, secondsRun, secondsWaited, shareDone } from "@/jobs/facts";
import { Button, CopyButton } from "@/parts/button";
import { jobColour, Swatch } from "@/parts/colour";
import { Menu } from "@/parts/menu";
import { Ago, useNow } from "@/parts/now";
import { Meter, SlotBar } from "@/parts/slots";
import { ENDED, StageBadge } from "@/parts/stage";
import { Note } from "@/parts/states";
import { Link } from "@/router/router";
import { mayChange, maySubmit, useSession } from "@/session/session";

type Asking = "stop" | "priority" | "belongs" | "resize" | "clone";

/** The head. */
export function RunHeader({ job }: { job: Job }) {
  const session = useSession();
  const doTo = useDoToJobs();
  const [asking, setAsking] = useState<Asking | null>(null);
  const may = mayChange(session, job.owner);
  const isOver = ENDED.has(job.stage);
  const close = () => setAsking(null);
  return (
    <header className="run-head">
      <div className="run-title">
        <div className="grow">
          <nav className="small quiet run-path" aria-label="Where this is">
            <Link to="/runs">Runs</Link> /{" "}
            <Link to="/runs" query={{ owner: job.owner }}>
              {job.owner}
            </Link>
          </nav>
          <h1 className="run-name">
            <Swatch id={job.id} />
            <span>{job.name}</span>
            <StageBadge stage={job.stage} />
          </h1>
          <p className="soft small run-id">
            <code>{job.id}</code>
            <CopyButton text={job.id} what="the id" />
            <span title={formatFullTime(job.submitted_at)}>
              submitted <Ago time={job.submitted_at} />
            </span>
            <span>queue {job.queue}</span>
            {job.attempt > 1 && <span>attempt {job.attempt}</span>}
            {Object.entries(job.labels).map(([name, value]) => (
              <Link key={name} to="/runs" query={{ label: `${name}=${value}` }} className="chip">
                {name}={value}
              </Link>
            ))}
          </p>
        </div>
        <div className="row row-wrap run-actions">
          {may && !isOver && (
            <>
              {canDo("resume", job) ? (
                <Button icon="play" look="main" onClick={() => void doTo([job], "Resumed", resumeJob)}>
                  Resume
                </Button>
              ) : (
                <Button
                  icon="pause"
                  disabled={!canDo("pause", job)}
                  onClick={() => void doTo([job], "Pausing", pauseJob)}
                >
                  Pause
                </Button>
              )}
              <Button icon="resize" onClick={() => setAsking("resize")}>
                Resize
              </Button>
              <Button icon="stop" isBad disabled={job.stage === "stopping"} onClick={() => setAsking("stop")}>
                Stop
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
                { label: "Priority…", icon: "arrowUp", isOff: isOver, onPick: () => setAsking("priority") },
                { label: isOver ? "Labels…" : "Queue and labels…", icon: "flag", onPick: () => setAsking("belongs") },
              ]}
            />
          )}
        </div>
      </div>
      {job.stage === "failed" ? <Note tone="bad">{job.reason}</Note> : <p className="run-reason">{sayReason(job)}</p>}
      <Figures job={job} />
      {asking === "stop" && <StopDialog jobs={[job]} onClose={close} />}
      {asking === "priority" && <PriorityDialog jobs={[job]} onClose={close} />}
      {asking === "belongs" && <BelongsDialog job={job} onClose={close} />}
      {asking === "resize" && <ResizeDialog job={job} onClose={close} />}
      {asking === "clone" && <Clone job={job} onClose={close} />}
    </header>
  );
}

function sayReason(job: Job): string {
  const decided = ENDED.has(job.stage) ? null : job.decided_reason;
  const told = [...new Set([job.reason, decided])].filter((each) => each !== null && each !== "");
  return told.map((each) => `${each?.charAt(0).toUpperCase()}${each?.slice(1)}.`).join(" ");
}

function Clone({ job, onClose }: { job: Job; onClose: () => void }) {
  const spec = useAsk(["job", job.id], "/jobs/{job}/spec", { path: { job: job.id } });
  return spec.data ? <CloneDialog job={job} spec={spec.data} onClose={onClose} /> : null;
}

function Figures({ job }: { job: Job }) {
  const now = useNow();
  const progress = job.progress;
  const share = shareDone(job);
  const left = secondsLeft(job, now);
  const isOver = ENDED.has(job.stage);
  const steps =
    progress?.step === null || progress?.step === undefined
      ? "–"
      : `step ${formatCount(progress.step)}${progress.num_steps ? ` of ${formatCount(progress.num_steps)}` : ""}`;
  return (
    <dl className="run-figures card">
      <Figure name="Progress" isWide>
        <strong>{share === null ? steps : formatShare(share)}</strong>
        {share !== null && <Meter share={share} label="Progress" colour={jobColour(job.id)} />}
        <small>
          {share !== null && steps}
          {left !== null && ` · about ${formatDuration(left)} left`}
          {progress?.epoch !== null && progress?.epoch !== undefined && ` · epoch ${progress.epoch + 1}`}
        </small>
      </Figure>
      <Figure name={isOver ? "Slots it might have" : "Slots"}>
        <strong>{saySlots(job)}</strong>
        <SlotBar num={job.num_slots} min={job.min_workers} max={job.max_workers} colour={jobColour(job.id)} />
        <small>
          {!job.is_elastic && "static"}
          {!isOver && job.decided_slots !== null && job.decided_slots !== job.num_slots && `soon ${job.decided_slots}`}
        </small>
      </Figure>
      <Figure name="Loss">
        <strong>{formatValue(progress?.loss)}</strong>
      </Figure>
      <Figure name="Throughput">
        <strong>{formatValue(progress?.samples_per_s, 3)}</strong>
        <small>samples per second</small>
      </Figure>
      <Figure name={isOver ? "Ran" : "Runs for"}>
        <strong>{formatDuration(secondsRun(job, now))}</strong>
        <small>waited {formatDuration(secondsWaited(job, now))}</small>
      </Figure>
      <Figure name="Priority">
        <strong>{job.priority}</strong>
        {progress?.resize_s !== null && progress?.resize_s !== undefined && (
          <small>last resize took {formatValue(progress.resize_s, 2)} s</small>
        )}
      </Figure>
    </dl>
  );
}

function Figure({ name, children, isWide }: { name: string; children: ReactNode; isWide?: boolean }) {
  return (
    <div className={isWide ? "run-figure run-figure-wide" : "run-figure"}>
      <dt>{name}</dt>
      <dd className="number">{children}</dd>
    </div>
  );
}
