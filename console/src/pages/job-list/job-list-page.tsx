/** All jobs that the user may see: one table, live, with filters in the address and changes of several at once. */

import { useMemo, useState } from "react";
import { useAsk } from "@/api/queries";
import type { Job, Timeline } from "@/api/types";
import { countOf } from "@/format/numbers";
import { pauseJob, resumeJob, useDoToJobs } from "@/jobs/changes";
import { BelongsDialog, PriorityDialog, StopDialog } from "@/jobs/dialogs";
import { canDo } from "@/jobs/facts";
import { findCommonReasons, usePositions } from "@/jobs/waiting";
import { startedFirst } from "@/pages/pool/pool-data";
import { Button } from "@/parts/button";
import { keepApart } from "@/parts/colour";
import { Menu } from "@/parts/menu";
import { useNarrow } from "@/parts/narrow";
import { useNow } from "@/parts/now";
import type { StepLine } from "@/parts/slots";
import { ENDED } from "@/parts/stage";
import { Empty, ErrorState, Loading } from "@/parts/states";
import { type Sort, Table } from "@/parts/table";
import { go, useQueryValue, useRoute } from "@/router/router";
import { mayChange, maySubmit, useSession } from "@/session/session";
import { useExtras } from "./chosen-columns";
import { makeColumns, makeNarrowColumns, SPARK_S } from "./columns";
import { ColumnsDialog } from "./columns-dialog";
import { FILTER_NAMES, readFilter } from "./filter";
import { FilterBar } from "./filter-bar";
import { useProjectNames } from "./project-names";
import "./job-list.css";
import { useJobs } from "./use-jobs";
import { listNames, useValues } from "./use-values";

const ROW_HEIGHT = 52;
const SPARK_POINTS = 60;
const SPARK_STEP_S = 300;
/** On a phone, a row has a name of two lines, its state and its reason. */
const NARROW_ROW_HEIGHT = 118;
/** A line with the columns that the user has added. */
const EXTRAS_HEIGHT = 20;
const NO_IDS: ReadonlySet<string> = new Set();
type Asking = { what: "stop" | "priority" | "belongs"; jobs: readonly Job[] };

const keyOf = (job: Job) => job.id;

/** The page. */
export default function JobListPage() {
  const session = useSession();
  const route = useRoute();
  const written = FILTER_NAMES.map((name) => `${name}=${route.query.getAll(name)}`).join("&");
  // biome-ignore lint/correctness/useExhaustiveDependencies: the filter is another one when its words are
  const filter = useMemo(() => readFilter(route.query), [written]);
  const listed = useJobs(filter);
  useMemo(() => keepApart(startedFirst(listed.jobs)), [listed.jobs]);
  const doTo = useDoToJobs();
  const projects = useProjectNames();
  const pool = useAsk(["pool"], "/pool");
  const recently = useNow(SPARK_STEP_S);
  const held = useAsk(
    ["pool"],
    "/timeline",
    { query: { by: "job", since: recently - SPARK_S, points: SPARK_POINTS } },
    { keepsLast: true },
  );
  const lines = useMemo(() => readLines(held.data), [held.data]);
  const positions = usePositions(listed.jobs.some((job) => job.stage === "queued"));
  const common = useMemo(() => findCommonReasons(listed.jobs), [listed.jobs]);
  const isNarrow = useNarrow();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(NO_IDS);
  const [asking, setAsking] = useState<Asking | null>(null);
  const [sortText, setSortText] = useQueryValue("sort");
  const sort = useMemo(() => readSort(sortText), [sortText]);
  const [extras, chooseExtras] = useExtras();
  const [isChoosing, setChoosing] = useState(false);
  const needsValues = isChoosing || extras.some((extra) => extra.of !== "");
  const { values, error: valuesError } = useValues(listed.jobs, needsValues);
  const onNotes = (job: Job) =>
    mayChange(session, job.owner) ? () => setAsking({ what: "belongs", jobs: [job] }) : null;

  const menuOf = (job: Job) => {
    const may = mayChange(session, job.owner);
    return (
      <Menu
        label={null}
        name={`Actions for ${job.name}`}
        icon="dots"
        look="plain"
        isSmall
        items={[
          job.stage === "paused"
            ? { label: "Resume", icon: "play", isOff: !may, onPick: () => void doTo([job], "Resumed", resumeJob) }
            : {
                label: "Pause",
                icon: "pause",
                isOff: !may || !canDo("pause", job),
                onPick: () => void doTo([job], "Pausing", pauseJob),
              },
          {
            label: "Priority…",
            icon: "arrowUp",
            isOff: !may || !canDo("priority", job),
            onPick: () => setAsking({ what: "priority", jobs: [job] }),
          },
          {
            label: "Notes and labels…",
            icon: "edit",
            isOff: !may,
            onPick: () => setAsking({ what: "belongs", jobs: [job] }),
          },
          {
            label: "Stop…",
            icon: "stop",
            isBad: true,
            isOff: !may || !canDo("stop", job),
            onPick: () => setAsking({ what: "stop", jobs: [job] }),
          },
          "line",
          { label: "Show logs", icon: "file", onPick: () => go(`/jobs/${job.id}`, { tab: "logs" }) },
          { label: "Explain slots", icon: "info", onPick: () => go(`/jobs/${job.id}`, { tab: "why" }) },
        ]}
      />
    );
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the menu is the same for the same session
  const columns = useMemo(
    () =>
      (isNarrow ? makeNarrowColumns : makeColumns)(
        { lines, numSlots: pool.data?.num_slots ?? 1, projects, positions, common, extras, values, onNotes },
        menuOf,
      ),
    [lines, pool.data?.num_slots, projects, session, positions, common, isNarrow, extras, values],
  );
  const chosenJobs = listed.jobs.filter((job) => chosen.has(job.id));

  return (
    <div className="page page-full jobs">
      <div className="page-head">
        <h1>Jobs</h1>
        <Counts jobs={listed.jobs} hasMore={listed.hasMore} />
      </div>
      <div className="card jobs-card">
        <FilterBar
          filter={filter}
          projects={projects}
          jobs={listed.jobs}
          onColumns={() => setChoosing(true)}
          numExtras={extras.length}
        />
        {common.size > 0 && (
          <ul className="jobs-common small" aria-label="Why jobs wait">
            {[...common].map(([reason, num]) => (
              <li key={reason}>
                <strong className="number">{countOf(num, "queued job")}</strong>: {reason}
              </li>
            ))}
          </ul>
        )}
        {listed.error ? (
          <ErrorState error={listed.error} retry={listed.retry} what="the jobs" />
        ) : listed.isPending ? (
          <Loading numLines={9} />
        ) : (
          <Table
            label="Jobs"
            rows={listed.jobs}
            columns={columns}
            keyOf={keyOf}
            namesHidden={extras.length > 0 && !isNarrow}
            rowHeight={isNarrow ? NARROW_ROW_HEIGHT + (extras.length ? EXTRAS_HEIGHT : 0) : ROW_HEIGHT}
            onOpen={(job) => go(`/jobs/${job.id}`)}
            chosen={chosen}
            onChoose={setChosen}
            sort={sort}
            onSort={(next) => setSortText(next ? `${next.isUp ? "" : "-"}${next.by}` : null)}
            empty={<NoJobs isFiltered={written !== UNFILTERED} maySubmit={maySubmit(session)} />}
            foot={
              listed.hasMore && (
                <div className="jobs-more">
                  <Button isBusy={listed.isMoreComing} onClick={listed.showMore}>
                    Show older jobs
                  </Button>
                </div>
              )
            }
          />
        )}
        {chosenJobs.length > 0 && <Several jobs={chosenJobs} onAsk={setAsking} onClear={() => setChosen(NO_IDS)} />}
      </div>
      {asking?.what === "stop" && <StopDialog jobs={asking.jobs} onClose={() => setAsking(null)} />}
      {asking?.what === "belongs" && asking.jobs[0] && (
        <BelongsDialog job={asking.jobs[0]} onClose={() => setAsking(null)} />
      )}
      {isChoosing && (
        <ColumnsDialog
          chosen={extras}
          {...listNames(values)}
          error={valuesError}
          onChoose={chooseExtras}
          onClose={() => setChoosing(false)}
        />
      )}
      {asking?.what === "priority" && <PriorityDialog jobs={asking.jobs} onClose={() => setAsking(null)} />}
    </div>
  );
}

const UNFILTERED = FILTER_NAMES.map((name) => `${name}=`).join("&");

function readLines(told: Timeline | undefined): Map<string, StepLine> {
  const lines = new Map<string, StepLine>();
  for (const { key, times, slots } of told?.items ?? []) if (key !== null) lines.set(key, { times, values: slots });
  return lines;
}

function readSort(text: string): Sort | null {
  if (!text) return null;
  return text.startsWith("-") ? { by: text.slice(1), isUp: false } : { by: text, isUp: true };
}

function Counts({ jobs, hasMore }: { jobs: readonly Job[]; hasMore: boolean }) {
  const numQueued = jobs.filter((job) => job.stage === "queued").length;
  const numEnded = jobs.filter((job) => ENDED.has(job.stage)).length;
  const numPaused = jobs.filter((job) => job.stage === "paused").length;
  const numRunning = jobs.length - numQueued - numEnded - numPaused;
  const told = [
    [numRunning, "running"],
    [numQueued, "queued"],
    [numPaused, "paused"],
    [numEnded, "ended"],
  ] as const;
  return (
    <p className="soft number">
      {told
        .filter(([num]) => num > 0)
        .map(([num, word]) => `${num}${word === "ended" && hasMore ? "+" : ""} ${word}`)
        .join(" · ")}
    </p>
  );
}

function NoJobs({ isFiltered, maySubmit: may }: { isFiltered: boolean; maySubmit: boolean }) {
  if (isFiltered) {
    return (
      <Empty icon="filter" title="No matching jobs" action={<Button onClick={() => go("/jobs")}>Show all jobs</Button>}>
        Change the filter, or show all jobs.
      </Empty>
    );
  }
  return (
    <Empty
      icon="play"
      title="No jobs yet"
      action={
        may && (
          <Button look="main" icon="plus" onClick={() => go("/submit")}>
            New experiment
          </Button>
        )
      }
    >
      {may
        ? "Create an experiment here, or submit a job with legato submit."
        : "Jobs appear here when users submit them."}
    </Empty>
  );
}

interface SeveralProps {
  jobs: readonly Job[];
  onAsk: (asking: Asking) => void;
  onClear: () => void;
}

function Several({ jobs, onAsk, onClear }: SeveralProps) {
  const session = useSession();
  const doTo = useDoToJobs();
  const mine = jobs.filter((job) => mayChange(session, job.owner));
  const pausable = mine.filter((job) => canDo("pause", job));
  const resumable = mine.filter((job) => canDo("resume", job));
  const stoppable = mine.filter((job) => canDo("stop", job));
  return (
    <section className="jobs-several" aria-label="Selected jobs">
      <strong>{countOf(jobs.length, "job")} selected</strong>
      {mine.length === 0 && <span className="quiet">You cannot change these jobs</span>}
      <span className="grow" />
      <Button isSmall icon="pause" disabled={!pausable.length} onClick={() => void doTo(pausable, "Pausing", pauseJob)}>
        Pause
      </Button>
      <Button
        isSmall
        icon="play"
        disabled={!resumable.length}
        onClick={() => void doTo(resumable, "Resumed", resumeJob)}
      >
        Resume
      </Button>
      <Button
        isSmall
        icon="arrowUp"
        disabled={!stoppable.length}
        onClick={() => onAsk({ what: "priority", jobs: stoppable })}
      >
        Priority
      </Button>
      <Button
        isSmall
        isBad
        icon="stop"
        disabled={!stoppable.length}
        onClick={() => onAsk({ what: "stop", jobs: stoppable })}
      >
        Stop
      </Button>
      <Button
        isSmall
        icon="compare"
        disabled={jobs.length < 2}
        onClick={() => go("/compare", { job: jobs.map((job) => job.id) })}
      >
        Compare
      </Button>
      <Button isSmall look="plain" icon="cross" aria-label="Clear selection" onClick={onClear} />
    </section>
  );
}
