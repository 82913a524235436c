/** Two or more jobs: metrics overlaid, what each took, parameters side by side. Which ones stands in the address. */

import { useQueries } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { Chart, type Range } from "@/charts/chart";
import { chooseScale } from "@/charts/scale";
import { type Line, smooth } from "@/charts/series";
import { SmoothingChoice } from "@/charts/smoothing";
import { askMetrics } from "@/charts/use-training";
import { formatCount } from "@/format/numbers";
import { formatDuration, formatTime } from "@/format/time";
import { tellApart } from "@/jobs/names";
import { Button } from "@/parts/button";
import { coloursApart } from "@/parts/colour";
import { Segments } from "@/parts/segments";
import { ENDED } from "@/parts/stage";
import { Empty, ErrorState, Loading, Note } from "@/parts/states";
import { go, useQueryValue, useRoute } from "@/router/router";
import { compareFacts, listFacts } from "../job/diff";
import { CodeCard } from "./code-card";
import { type Axis, countCovered, findExtent, findLine, findPauses, listNames, type Whole } from "./compare";
import "./compare.css";
import { FactsTable, FiguresTable } from "./compare-tables";
import { JobPicker } from "./job-picker";

const MAX_JOBS = 12;
const ASK_EVERY_MS = 4000;

const AXES: readonly { value: Axis; label: string }[] = [
  { value: "step", label: "Step" },
  { value: "seconds", label: "Seconds since start" },
  { value: "time", label: "Wall time" },
];

/** The page. */
export default function ComparePage() {
  const { query } = useRoute();
  const all = useMemo(() => [...new Set(query.getAll("job"))], [query]);
  const ids = useMemo(() => all.slice(0, MAX_JOBS), [all]);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Compare jobs</h1>
      </div>
      <JobPicker
        chosen={ids}
        max={MAX_JOBS}
        onChoose={(next) => go("/compare", { job: [...next, ...all.slice(MAX_JOBS)] }, true)}
      />
      {all.length > ids.length && (
        <Note tone="warn">
          Showing the first {ids.length} of {all.length} jobs, because more lines would look alike. Remove some jobs to
          see the others.
        </Note>
      )}
      {ids.length === 0 ? <Nothing /> : <Comparison ids={ids} />}
    </div>
  );
}

function Nothing() {
  return (
    <div className="card">
      <Empty icon="compare" title="No jobs selected" action={<Button onClick={() => go("/jobs")}>Go to jobs</Button>}>
        Search for jobs above, or select them on the Jobs page and click Compare.
      </Empty>
    </div>
  );
}

function Comparison({ ids }: { ids: readonly string[] }) {
  const pool = useAsk(["pool"], "/slots", {}, { fresh_s: 300 });
  const jobs = useQueries({
    queries: ids.map((id) => ({
      queryKey: ["job", id, "/jobs/{job}", { job: id }, null],
      queryFn: () => ask("get", "/jobs/{job}", { path: { job: id } }),
      refetchInterval: (known: { state: { data: Job | undefined } }) =>
        known.state.data && ENDED.has(known.state.data.stage) ? false : (ASK_EVERY_MS as number | false),
    })),
  });
  const found = jobs.flatMap(({ data }) => (data ? [data] : []));
  const metrics = useQueries({ queries: found.map((job) => askMetrics(job)) });
  const specs = useQueries({
    queries: found.map((job) => ({
      queryKey: ["job", job.id, "spec"],
      queryFn: () => ask("get", "/jobs/{job}/spec", { path: { job: job.id } }),
      staleTime: 600_000,
    })),
  });
  const allocations = useQueries({
    queries: found.map((job) => ({
      queryKey: ["job", job.id, "allocations"],
      queryFn: () => ask("get", "/jobs/{job}/allocations", { path: { job: job.id } }),
    })),
  });
  const wrong = [...jobs, ...metrics, ...specs, ...allocations].find((asked) => asked.error && !asked.data);
  if (wrong) return <ErrorState error={wrong.error} what="these jobs" retry={() => void wrong.refetch()} />;
  const compared = found.flatMap((job, place): Whole[] => {
    const [measured, spec, held] = [metrics[place]?.data, specs[place]?.data, allocations[place]?.data];
    return measured && spec && held ? [{ job, metrics: measured, spec, allocations: held.items }] : [];
  });
  if (compared.length < ids.length) return <Loading numLines={8} />;
  const hasGpus = (pool.data?.items ?? []).some((slot) => !slot.device.startsWith("cpu"));
  return (
    <>
      <Overlay compared={compared} />
      <FiguresTable compared={compared} unit={hasGpus ? "GPU-hours" : "Slot-hours"} />
      <FactsTable
        jobs={compared.map(({ job }) => job)}
        facts={compareFacts(compared.map(({ job, spec }) => listFacts(job, spec)))}
      />
      {compared.length > 1 && <CodeCard compared={compared} />}
    </>
  );
}

function sayX(axis: Axis, x: number): string {
  if (axis === "time") return formatTime(x);
  return axis === "step" ? `step ${formatCount(Math.floor(x))}` : formatDuration(x);
}

function Overlay({ compared }: { compared: readonly Whole[] }) {
  const [written, setAxis] = useQueryValue("axis", "step");
  const axis = AXES.find((each) => each.value === written)?.value ?? "step";
  const [zoom, setZoom] = useState<Range | null>(null);
  const [isLog, setLog] = useState(false);
  const [weight, setWeight] = useState(0);
  const names = listNames(compared);
  const called = tellApart(compared.map(({ job }) => job));
  const colours = coloursApart(compared.map(({ job }) => job.id));
  if (!names.length) {
    return (
      <div className="card">
        <Empty icon="compare" title="No metrics yet" />
      </div>
    );
  }
  return (
    <section className="stack" aria-label="Metrics">
      <div className="row row-wrap">
        <Segments
          label="X axis"
          choices={AXES}
          chosen={axis}
          onChoose={(next: string) => {
            setAxis(next);
            setZoom(null);
          }}
        />
        <SmoothingChoice weight={weight} onWeight={setWeight} />
        <Button isSmall aria-pressed={isLog} onClick={() => setLog(!isLog)}>
          Log scale
        </Button>
        {zoom && (
          <Button isSmall icon="cross" onClick={() => setZoom(null)}>
            Reset zoom
          </Button>
        )}
      </div>
      <div className="compare-charts">
        {names.map((name) => {
          const found = compared.map((one) => findLine(one, name, axis, findPauses(one.allocations)));
          const covered = countCovered(found);
          const lines = compared.map(({ job }, place) => ({
            ...(found[place] as Line),
            values: smooth((found[place] as Line).values, weight),
            label: called.get(job.id) ?? job.name,
            colour: colours.get(job.id) as string,
            numCovered: covered[place] ?? 0,
          }));
          return (
            <div className="card compare-chart" key={name}>
              <Chart
                {...chooseScale(
                  name,
                  isLog,
                  lines.map((line) => line.values),
                )}
                group="compare"
                lines={lines}
                range={zoom ?? findExtent(lines)}
                onRange={setZoom}
                height={200}
                x={axis === "time" ? "time" : "number"}
                sayX={(x) => sayX(axis, x)}
              />
            </div>
          );
        })}
      </div>
    </section>
  );
}
