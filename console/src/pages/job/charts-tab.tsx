/** Charts of a job: one cursor and one range for all, and a mark wherever its workers changed. */

import { useMemo, useState } from "react";
import type { Job, JobMetrics, Series, TrainingEvent } from "@/api/types";
import { Chart, type ChartLine, type Range } from "@/charts/chart";
import { findMarks, findThroughput, findWorkers, type Mark, smooth } from "@/charts/series";
import { useTraining } from "@/charts/use-training";
import { formatCount } from "@/format/numbers";
import { formatTime } from "@/format/time";
import { Button } from "@/parts/button";
import { jobColour } from "@/parts/colour";
import { Icon } from "@/parts/icon";
import { ENDED } from "@/parts/stage";
import { Empty, ErrorState, Loading } from "@/parts/states";
import { go, Link, readRoute } from "@/router/router";

const FIRST = /^(?:train(?:ing)?[_/ -]?)?loss$/i;
const SMOOTHINGS = [0, 0.6, 0.9, 0.97] as const;
const SHOWN_MARKS = 200;

/** The charts. */
export function ChartsTab({ job }: { job: Job }) {
  const { metrics, events } = useTraining(job);
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
  return <Charts job={job} metrics={metrics.data} events={events.data} />;
}

function Charts({ job, metrics, events }: { job: Job; metrics: JobMetrics; events: readonly TrainingEvent[] }) {
  const [zoom, setZoom] = useState<Range | null>(null);
  const [picked, setPicked] = useState<number | null>(null);
  const [weight, setWeight] = useState(0);
  const [isLog, setLog] = useState(false);
  const [showsSaves, setShowsSaves] = useState(false);
  const all = useMemo(() => findMarks(events), [events]);
  const marks = useMemo(() => all.filter((mark) => showsSaves || mark.word !== "Checkpoint"), [all, showsSaves]);
  const range = zoom ?? findRange(metrics, events);
  const throughput = useMemo(() => findThroughput(metrics.steps), [metrics.steps]);
  const workers = useMemo(
    () => extend(findWorkers(events), metrics.steps.time.at(-1), job),
    [events, metrics.steps, job],
  );
  const colour = jobColour(job.id);
  const series = useMemo(() => sortSeries(metrics), [metrics]);
  const common = { group: `job-${job.id}`, range, onRange: setZoom, onPick: setPicked, marks };
  const draw = (each: Series) => (
    <div className="card charts-card" key={each.name}>
      <Chart
        {...common}
        title={each.name}
        lastNote={` logged at step ${formatCount(each.step.at(-1) ?? 0)}`}
        isLog={isLog && each.value.every((value) => value === null || value > 0)}
        lines={drawSmoothed(each.name, each.time, each.value, weight, colour)}
      />
    </div>
  );
  return (
    <div className="stack">
      <div className="row row-wrap charts-bar">
        <label className="row small">
          <span className="soft">Smoothing</span>
          <select
            className="input input-small charts-smooth"
            value={weight}
            onChange={(event) => setWeight(Number(event.currentTarget.value))}
          >
            {SMOOTHINGS.map((each) => (
              <option key={each} value={each}>
                {each === 0 ? "off" : each}
              </option>
            ))}
          </select>
        </label>
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
      <div className="charts-grid">
        {series.slice(0, 1).map(draw)}
        <div className="card charts-card">
          <Chart
            {...common}
            title="Throughput"
            lastNote=", recent average"
            unit=" steps/s"
            fromZero
            lines={[{ ...throughput, label: "Throughput", colour, isFilled: true }]}
          />
        </div>
        <div className="card charts-card">
          <Chart
            {...common}
            title="Workers"
            fromZero
            lines={[{ ...workers, label: "Workers", colour, isStep: true, isFilled: true }]}
          />
        </div>
        {series.slice(1).map(draw)}
      </div>
      <Happenings marks={marks} onPick={setPicked} />
    </div>
  );
}

function sortSeries(metrics: JobMetrics): JobMetrics["series"] {
  return [...metrics.series].sort(
    (one, other) => Number(FIRST.test(other.name)) - Number(FIRST.test(one.name)) || one.name.localeCompare(other.name),
  );
}

function drawSmoothed(
  label: string,
  times: readonly number[],
  values: readonly (number | null)[],
  weight: number,
  colour: string,
): ChartLine[] {
  if (!weight) return [{ label, times, values, colour }];
  return [
    { label: "original", times, values, colour: "var(--line-strong)" },
    { label: "smoothed", times, values: smooth(values, weight), colour },
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

const TONE_ICONS = { resize: "resize", death: "alert", note: "flag" } as const;

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
