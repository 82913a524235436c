/** Why a job has what it has: sentences, causes, who has the rest, and all decisions. */

import { useAsk } from "@/api/queries";
import type { Attempt, Explanation, Job, Stage } from "@/api/types";
import { countOf } from "@/format/numbers";
import { formatDuration, formatFullTime, formatTime } from "@/format/time";
import { Swatch } from "@/parts/colour";
import { STAGES } from "@/parts/stage";
import { Answered, Note } from "@/parts/states";
import { Link } from "@/router/router";

const NUM_DECISIONS = 100;

/** The reasons. */
export function WhyTab({ job }: { job: Job }) {
  const path = { job: job.id };
  const why = useAsk(["job", job.id], "/jobs/{job}/explain", { path, query: { limit: NUM_DECISIONS } }, { every_s: 5 });
  const attempts = useAsk(["job", job.id], "/jobs/{job}/attempts", { path });
  return (
    <Answered asked={why} what="the reasons">
      {(found) => (
        <div className="why">
          <section className="card card-body stack why-said">
            {found.sentences.map((sentence) => (
              <p key={sentence}>{sentence}</p>
            ))}
            {found.ceiling !== null && (
              <Note tone="info">
                The ceiling of its queue, {found.ceiling} slots, limits this job. With a higher ceiling it would get
                more slots.
              </Note>
            )}
          </section>
          <Parties title="Caused by" parties={found.because} />
          <Parties title="Pool now" parties={found.holders} />
          <Lost lost={found.lost} />
          <Decisions decisions={found.decisions} />
          <Attempts attempts={attempts.data?.items ?? []} stage={job.stage} />
        </div>
      )}
    </Answered>
  );
}

function Parties({ title, parties }: { title: string; parties: Explanation["because"] }) {
  if (!parties.length) return null;
  return (
    <section className="card">
      <div className="card-head">
        <h2>{title}</h2>
      </div>
      <ul className="why-list">
        {parties.map((party, place) => (
          <li key={place}>
            {party.job && <Swatch id={party.job} />}
            <JobLink job={party.job} title={party.title} />
            <span className="quiet">{countOf(party.num_slots, "slot")}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function JobLink({ job, title }: { job: string | null; title: string }) {
  return job ? (
    <Link to={`/jobs/${job}`} className="cut">
      {title}
    </Link>
  ) : (
    <span className="cut">{title}</span>
  );
}

function Lost({ lost }: { lost: Explanation["lost"] }) {
  if (!lost.length) return null;
  return (
    <section className="card">
      <div className="card-head">
        <h2>Lost slots</h2>
      </div>
      <ul className="why-list">
        {lost.map((each, place) => (
          <li key={place}>
            <span className="number quiet" title={formatFullTime(each.time)}>
              {formatTime(each.time)}
            </span>
            <code>{each.slot}</code>
            <span>→</span>
            {each.title ? <JobLink job={each.job} title={each.title} /> : <span className="quiet">no job</span>}
            <span className="soft">{each.reason}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Decisions({ decisions }: { decisions: Explanation["decisions"] }) {
  return (
    <section className="card why-wide">
      <div className="card-head">
        <h2>Decisions</h2>
        <span className="quiet small">newest first</span>
      </div>
      {decisions.length === 0 && <p className="card-body quiet">No decisions yet.</p>}
      <ol className="decisions">
        {decisions.map((decision, place) => (
          <li key={place}>
            <span className="decisions-time number quiet" title={formatFullTime(decision.time)}>
              {formatTime(decision.time)}
            </span>
            <strong className="number decisions-slots">{countOf(decision.num_slots, "slot")}</strong>
            <span>{decision.reason}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Attempts({ attempts, stage }: { attempts: readonly Attempt[]; stage: Stage }) {
  if (!attempts.length) return null;
  return (
    <section className="card why-wide">
      <div className="card-head">
        <h2>Attempts</h2>
      </div>
      <ol className="decisions">
        {attempts.map((attempt) => (
          <li key={attempt.attempt}>
            <span className="decisions-time number quiet" title={formatFullTime(attempt.started_at)}>
              {formatTime(attempt.started_at)}
            </span>
            <strong className="decisions-slots">
              {STAGES[attempt.outcome ?? stage].word}
              {attempt.ended_at !== null && (
                <span className="quiet small"> after {formatDuration(attempt.ended_at - attempt.started_at)}</span>
              )}
            </strong>
            <span>{attempt.reason}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
