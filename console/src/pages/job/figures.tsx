/** The figures of a job: how far it is, what it has, how well and how fast it trains, and how long it has run. */

import type { ReactNode } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { formatCount, formatOrdinal, formatShare, formatValue } from "@/format/numbers";
import { formatDuration } from "@/format/time";
import {
  mayHavePaused,
  mostSlots,
  saySlots,
  secondsHeld,
  secondsLeft,
  secondsRun,
  secondsWaited,
  shareDone,
} from "@/jobs/facts";
import { jobColour } from "@/parts/colour";
import { useNow } from "@/parts/now";
import { Meter, SlotBar } from "@/parts/slots";
import { ENDED } from "@/parts/stage";

/** What is shorter is below what can be measured. */
const SHORTEST_S = 0.05;

/** The figures. */
export function Figures({ job }: { job: Job }) {
  const now = useNow();
  const progress = job.progress;
  const share = shareDone(job);
  const left = secondsLeft(job, now);
  const isOver = ENDED.has(job.stage);
  const lasted = useLasted(job, now);
  const most = useMost(job);
  const pace = progress?.step_s ? formatValue(1 / progress.step_s, 3) : null;
  const resize = sayResize(progress?.resize_s);
  const steps =
    progress?.step === null || progress?.step === undefined
      ? "–"
      : `step ${formatCount(progress.step)}${progress.num_steps ? ` of ${formatCount(progress.num_steps)}` : ""}`;
  return (
    <dl className="job-figures card">
      <Figure name="Progress" isWide>
        <strong>{share === null ? steps : formatShare(share)}</strong>
        {share !== null && <Meter share={share} label="Progress" colour={jobColour(job.id)} />}
        <small>
          {share !== null && steps}
          {left !== null && ` · about ${formatDuration(left)} left`}
          {progress?.epoch !== null && progress?.epoch !== undefined && (
            <span title={`The first epoch is 0 in run.epochs: there, this is epoch ${progress.epoch}`}>
              {` · ${formatOrdinal(progress.epoch + 1)} epoch`}
            </span>
          )}
        </small>
      </Figure>
      <Figure name={isOver ? "Peak slots" : "Slots"}>
        <strong>{isOver ? sayMost(job, most) : saySlots(job)}</strong>
        <SlotBar
          num={isOver ? (most ?? 0) : job.num_slots}
          min={job.min_workers}
          max={job.max_workers}
          colour={jobColour(job.id)}
        />
        <small>
          {!job.is_elastic ? "static " : job.min_workers < job.max_workers && `minimum ${job.min_workers} `}
          {!isOver && job.decided_slots !== null && job.decided_slots !== job.num_slots && `→ ${job.decided_slots}`}
        </small>
        {resize && <small>{resize}</small>}
      </Figure>
      <Figure name="Loss">
        <strong>{formatValue(progress?.loss)}</strong>
        {progress?.loss !== null && progress?.loss !== undefined && <small>last reported</small>}
      </Figure>
      <Figure name="Throughput">
        <strong>{pace ? `${pace} steps/s` : "–"}</strong>
        {progress?.samples_per_s !== null && progress?.samples_per_s !== undefined && (
          <small>{formatValue(progress.samples_per_s, 3)} samples/s</small>
        )}
      </Figure>
      <Figure name="Runtime">
        <strong>
          {lasted.isAtMost && "≤ "}
          {formatDuration(lasted.held_s)}
        </strong>
        <small>
          {job.stage === "paused" && "paused · "}waited {formatDuration(secondsWaited(job, now))}
        </small>
      </Figure>
      <Figure name="Priority">
        <strong>{job.priority}</strong>
      </Figure>
    </dl>
  );
}

function Figure({ name, children, isWide }: { name: string; children: ReactNode; isWide?: boolean }) {
  return (
    <div className={isWide ? "job-figure job-figure-wide" : "job-figure"}>
      <dt>{name}</dt>
      <dd className="number">{children}</dd>
    </div>
  );
}

/** Return the most slots that a job that is over had at once, of those that it might have; null: not known yet. */
export function sayMost(job: Job, most: number | null): string {
  const bounds = job.min_workers === job.max_workers ? `${job.max_workers}` : `${job.min_workers}–${job.max_workers}`;
  return most === null ? bounds : `${most} of ${job.max_workers}`;
}

/** The most slots that a job had at once; null: it goes on, or it is not known yet. */
function useMost(job: Job): number | null {
  const isOn = ENDED.has(job.stage);
  const asked = useAsk(["job", job.id], "/jobs/{job}/allocations", { path: { job: job.id } }, { isOn });
  return asked.data ? mostSlots(asked.data.items) : null;
}

/** Return what the last resize cost; null: there was none, or it cost less than can be measured. */
export function sayResize(resize_s: number | null | undefined): string | null {
  if (resize_s === null || resize_s === undefined || resize_s < SHORTEST_S) return null;
  return `last resize took ${formatValue(resize_s, 2)} s`;
}

/** How long a job has held slots; until its attempts are known, at most how long. */
function useLasted(job: Job, now: number): { held_s: number | null; isAtMost: boolean } {
  const isAsked = mayHavePaused(job) || ENDED.has(job.stage);
  const asked = useAsk(["job", job.id], "/jobs/{job}/attempts", { path: { job: job.id } }, { isOn: isAsked });
  const attempts = asked.data?.items ?? [];
  if (isAsked && attempts.length === job.attempt && attempts.length) {
    return { held_s: secondsHeld(attempts, now), isAtMost: false };
  }
  return { held_s: secondsRun(job, now), isAtMost: mayHavePaused(job) };
}
