/** Charts of a job: one cursor and one range for all, and a mark wherever its workers changed. */

import { useMemo, useState } from "react";
import { useAsk } from "@/api/queries";
import type { Attempt, Job, JobMetrics, PlatformEvent, Series, TrainingEvent } from "@/api/types";
import { Chart, type ChartLine, type Range } from "@/charts/chart";
import { chooseScale } from "@/charts/scale";
import {
  breakAtGaps,
  drawOverSteps,
  drawOverTime,
  drawWorkersOverSteps,
  dropRepeated,
  findGaps,
  findMarks,
  findThroughput,
  findWorkers,
  type Line,
  type LineWithSteps,
  type Mark,
  placeAt,
  smooth,
} from "@/charts/series";
import { SmoothingChoice } from "@/charts/smoothing";
import { SystemCharts } from "@/charts/system-charts";
import { chartWorkers } from "@/charts/system-lines";
import { useTraining } from "@/charts/use-training";
import { formatCount } from "@/format/numbers";
import { formatTime } from "@/format/time";
import { Button } from "@/parts/button";
import { jobColour } from "@/parts/colour";
import { Icon } from "@/parts/icon";
import { Segments } from "@/parts/segments";
import { ENDED } from "@/parts/stage";
import { Empty, ErrorState, Loading } from "@/parts/states";
import { go, Link, readRoute, useQueryValue } from "@/router/router";

const FIRST = /^(?:train(?:ing)?[_/ -]?|step_)?loss$/i;
const SHOWN_MARKS = 200;
const AXES = [
  { value: "time", label: "Time" },
  { value: "step", label: "Step" },
] as const;
const NO_EVENTS: readonly PlatformEvent[] = [];
const NO_ATTEMPTS: readonly Attempt[] = [];

/** The charts. */
export function ChartsTab({ job }: { job: Job }) {
  const { metrics, events, ofPlatform } = useTraining(job);
  const attempts = useAsk(["job", job.id], "/jobs/{job}/attempts", { path: { job: job.id } });
  if (metrics.error && !metrics.data) {
    return <ErrorState error={metrics.error} retry={() => void metrics.refetch()} what="the charts" />;
  }
  if (!metrics.data || !events.data) return <Loading numLines={8} />;
  const hasSteps = metrics.data.steps.step.length > 0 || metrics.data.series.length > 0;
  if (!hasSteps && ENDED.has(job.stage)) {
    const toLogs = (
      <Link to={`/jobs/${job.id}`} query={{ tab: "logs" }}>
        Show logs
      </Link>
    );
    // A program that tells no steps may have done all its work.
    const hasWorked = job.stage === "succeeded" || Boolean(job.progress?.step);
    const title = hasWorked ? "No metrics" : "Ended before the first step";
    return (
      <Empty icon="compare" title={title} action={toLogs}>
        {job.reason}
      </Empty>
    );
  }
  if (!hasSteps && !events.data.length) {
    return (
      <Empty icon="compare" title="No metrics yet">
        Charts appear after the first step. The Why tab shows what the job is waiting for.
      </Empty>
    );
  }
  return (
    <Charts
      job={job}
      metrics={metrics.data}
      events={events.data}
      ofPlatform={ofPlatform.data ?? NO_EVENTS}
      attempts={attempts.data?.items ?? NO_ATTEMPTS}
    />
  );
}

interface ChartsProps {
  job: Job;
  metrics: JobMetrics;
  events: readonly TrainingEvent[];
  ofPlatform: readonly PlatformEvent[];
  attempts: readonly Attempt[];
}

function Charts({ job, metrics, events, ofPlatform, attempts }: ChartsProps) {
  const [axis, setAxis] = useQueryValue("axis", "time");
  const isOverSteps = axis === "step" && metrics.steps.step.length > 0;
  const [zoom, setZoom] = useState<Range | null>(null);
  const [picked, setPicked] = useState<number | null>(null);
  const [weight, setWeight] = useState(0);
  const [isLog, setLog] = useState(false);
  const [showsSaves, setShowsSaves] = useState(false);
  const all = useMemo(() => findMarks(events, ofPlatform, metrics.steps), [events, ofPlatform, metrics.steps]);
  const marks = useMemo(() => all.filter((mark) => showsSaves || mark.word !== "Checkpoint"), [all, showsSaves]);
  const range = zoom ?? (isOverSteps ? findStepRange(metrics) : findRange(metrics, events));
  const workers = useMemo(
    () => extend(findWorkers(events, { attempts, stepTimes: metrics.steps.time }), metrics.steps.time.at(-1), job),
    [events, attempts, metrics.steps, job],
  );
  const gaps = useMemo(() => findGaps(workers), [workers]);
  const throughput = useMemo(() => findThroughput(metrics.steps, gaps), [metrics.steps, gaps]);
  // Losses have the times of their commits, so they are known also while no driver ran.
  const idle = useMemo(() => gaps.filter((gap) => gap.isKnown), [gaps]);
  const colour = jobColour(job.id);
  const series = useMemo(() => sortSeries(metrics), [metrics]);
  const system = useAsk(
    ["job", job.id],
    "/jobs/{job}/system-metrics",
    { path: { job: job.id } },
    { every_s: ENDED.has(job.stage) ? 0 : 10, isOn: !isOverSteps },
  );
  const used = useMemo(() => (system.data ? chartWorkers(system.data) : []), [system.data]);
  const pick = (x: number) => {
    const { step, time } = metrics.steps;
    setPicked(isOverSteps ? (time[Math.max(0, placeAt(step, x))] ?? null) : x);
  };
  const common = {
    group: `job-${job.id}-${axis}`,
    range,
    onRange: setZoom,
    onPick: pick,
    marks,
    ...(isOverSteps ? { x: "number" as const, sayX: (x: number) => `step ${formatCount(Math.floor(x))}` } : {}),
  };
  const place = (line: LineWithSteps) => (isOverSteps ? drawOverSteps(line) : line);
  const draw = (each: Series) => (
    <div className="card charts-card" key={each.name}>
      <Chart
        {...common}
        {...chooseScale(each.name, isLog, [each.value])}
        lastNote={` at step ${formatCount(each.step.at(-1) ?? 0)}`}
        lines={drawSmoothed(each.name, place(breakAtGaps(drawOverTime(each), isOverSteps ? [] : idle)), weight, colour)}
      />
    </div>
  );
  return (
    <div className="stack">
      <div className="row row-wrap charts-bar">
        <Segments
          label="X axis"
          choices={AXES}
          chosen={isOverSteps ? "step" : "time"}
          onChoose={(next: string) => {
            setAxis(next);
            setZoom(null);
          }}
        />
        <SmoothingChoice weight={weight} onWeight={setWeight} />
        <Button isSmall aria-pressed={isLog} onClick={() => setLog(!isLog)}>
          Log scale
        </Button>
        <Button isSmall icon="flag" aria-pressed={showsSaves} onClick={() => setShowsSaves(!showsSaves)}>
          Checkpoints
        </Button>
        {zoom && (
          <Button isSmall icon="cross" onClick={() => setZoom(null)}>
            Reset zoom
          </Button>
        )}
        <span className="grow" />
        {picked === null ? (
          <span className="quiet small charts-hint">
            Drag to zoom, double-click to reset, click to see the logs at that time
          </span>
        ) : (
          <Picked time={picked} onClear={() => setPicked(null)} />
        )}
      </div>
      {metrics.steps.step.length > 0 && !series.some(({ name }) => FIRST.test(name)) && (
        <p className="small quiet">
          No loss to show. Legato sees the loss of a program that calls run.backward(loss), run.note_loss(loss) or
          run.log(loss=…).
        </p>
      )}
      <div className="charts-grid">
        {series.slice(0, 1).map(draw)}
        <div className="card charts-card">
          <Chart
            {...common}
            title="Throughput"
            lastNote=", recent average"
            unit=" steps/s"
            fromZero
            lines={[
              {
                ...(isOverSteps ? dropGaps(place(throughput)) : throughput),
                label: "Throughput",
                colour,
                isFilled: true,
              },
            ]}
          />
        </div>
        <div className="card charts-card">
          <Chart
            {...common}
            title="Workers"
            fromZero
            lines={[
              {
                ...(isOverSteps ? drawWorkersOverSteps(workers, metrics.steps) : workers),
                label: "Workers",
                colour,
                isStep: true,
                isFilled: true,
              },
            ]}
          />
        </div>
        {series.slice(1).map(draw)}
        {!isOverSteps && <SystemCharts charts={used} common={common} />}
      </div>
      <Happenings marks={marks} onPick={setPicked} />
    </div>
  );
}

function sortSeries(metrics: JobMetrics): JobMetrics["series"] {
  return [...dropRepeated(metrics.series)].sort(
    (one, other) => Number(FIRST.test(other.name)) - Number(FIRST.test(one.name)) || one.name.localeCompare(other.name),
  );
}

function drawSmoothed(
  label: string,
  line: Pick<ChartLine, "times" | "values" | "steps">,
  weight: number,
  colour: string,
): ChartLine[] {
  if (!weight) return [{ ...line, label, colour }];
  return [
    { ...line, label: "original", colour: "var(--line-strong)" },
    { ...line, label: "smoothed", values: smooth(line.values, weight), colour },
  ];
}

/** All of the time in which something was measured. */
function findRange(metrics: JobMetrics, events: readonly TrainingEvent[]): Range {
  const joined = events.find((event) => event.kind === "joined");
  const first = Math.min(joined?.time ?? Number.POSITIVE_INFINITY, metrics.steps.time[0] ?? Number.POSITIVE_INFINITY);
  const last = Math.max(metrics.steps.time.at(-1) ?? 0, events.at(-1)?.time ?? 0);
  const from = Number.isFinite(first) ? first : last - 1;
  return [from, Math.max(last, from + 1)];
}

/** No step lies in a gap of time, so a line over steps goes on. */
function dropGaps({ times, values }: Line): Line {
  const kept = times.flatMap((time, at) => (values[at] === null ? [] : [[time, values[at] as number] as const]));
  return { times: kept.map(([time]) => time), values: kept.map(([, value]) => value) };
}

function findStepRange({ steps, series }: JobMetrics): Range {
  const last = Math.max(steps.step.at(-1) ?? 0, ...series.map((each) => each.step.at(-1) ?? 0));
  const first = Math.min(steps.step[0] ?? 0, ...series.map((each) => each.step[0] ?? last));
  return [first, Math.max(last, first + 1)];
}

/** A line of what still holds goes on to the last moment that is known. */
function extend(
  line: { times: readonly number[]; values: readonly (number | null)[] },
  until: number | undefined,
  job: Job,
) {
  const last = line.times.at(-1);
  if (until === undefined || last === undefined || until <= last || ENDED.has(job.stage)) return line;
  return { times: [...line.times, until], values: [...line.values, line.values.at(-1) ?? 0] };
}

function Picked({ time, onClear }: { time: number; onClear: () => void }) {
  const show = () => {
    const { path, query } = readRoute(window.location.hash);
    query.set("tab", "logs");
    query.set("at", time.toFixed(3));
    go(path, query);
  };
  return (
    <span className="row">
      <span className="number">{formatTime(time)}</span>
      <Button isSmall look="main" icon="file" onClick={show}>
        Show logs
      </Button>
      <Button isSmall look="plain" icon="cross" aria-label="Clear the selected time" onClick={onClear} />
    </span>
  );
}

const TONE_ICONS = { resize: "resize", death: "alert", change: "user", note: "flag" } as const;

function Happenings({ marks, onPick }: { marks: readonly Mark[]; onPick: (time: number) => void }) {
  if (!marks.length) return null;
  const shown = marks.slice(-SHOWN_MARKS).toReversed();
  return (
    <section className="card" aria-label="Events">
      <div className="card-head">
        <h2>Events</h2>
        {marks.length > shown.length && <span className="quiet small">the last {shown.length}</span>}
      </div>
      <ol className="happenings">
        {shown.map((mark, place) => (
          <li key={place} className={`happening happening-${mark.tone}`}>
            <Icon name={TONE_ICONS[mark.tone]} size={14} />
            <button type="button" className="happening-time number" onClick={() => onPick(mark.time)}>
              {formatTime(mark.time)}
            </button>
            <strong>{mark.word}</strong>
            <span className="soft">{mark.reason}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
