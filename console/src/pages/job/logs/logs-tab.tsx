/** Logs of a job's driver and workers: followed, searched, by level and by worker, and from the charts to a moment. */

import { useCallback, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { countOf, formatCount } from "@/format/numbers";
import { formatTime } from "@/format/time";
import { Button } from "@/parts/button";
import { Icon } from "@/parts/icon";
import { Menu } from "@/parts/menu";
import { ENDED } from "@/parts/stage";
import { Answered, Empty, Note } from "@/parts/states";
import { useToasts } from "@/parts/toast";
import { Link, useQueryValue } from "@/router/router";
import type { Level } from "./ansi";
import { readWhole, saveAs } from "./download";
import { FilteredLines, findPlace, type LogBook, type LogFilter } from "./log-book";
import { LogList, type LogListHandle } from "./log-list";
import { findMoment } from "./moment";
import { useLogs } from "./use-logs";
import "./logs.css";

const LEVELS: readonly { level: Level; label: string }[] = [
  { level: "debug", label: "All levels" },
  { level: "warning", label: "Warnings and errors" },
  { level: "error", label: "Errors" },
];

interface LogFile {
  log: string;
  num_bytes: number;
}

/** The logs. */
export function LogsTab({ job }: { job: Job }) {
  const files = useAsk(
    ["job", job.id],
    "/jobs/{job}/logs",
    { path: { job: job.id } },
    { every_s: ENDED.has(job.stage) ? false : 5 },
  );
  return (
    <Answered asked={files} what="the logs">
      {({ items }) =>
        items.length === 0 ? (
          <Empty icon="file" title="No logs yet">
            {ENDED.has(job.stage)
              ? "The job ended before a worker started."
              : "Logs appear when the first worker starts. The Why tab shows what the job is waiting for."}
          </Empty>
        ) : (
          <Viewer job={job} files={items} />
        )
      }
    </Answered>
  );
}

function Viewer({ job, files }: { job: Job; files: readonly LogFile[] }) {
  const names = useMemo(() => sortLogs(files.map((file) => file.log)), [files]);
  const told = names.join("\n");
  // biome-ignore lint/correctness/useExhaustiveDependencies: the same names are the same list
  const logs = useMemo(() => names, [told]);
  const [chosen, setChosen] = useQueryValue("log");
  const [level, setLevel] = useQueryValue("level", "debug");
  const [written, setWritten] = useQueryValue("find");
  const [at, setAt] = useQueryValue("at");
  const [isOnlyText, setOnlyText] = useState(false);
  const [isFollowing, setFollowing] = useState(!at && !ENDED.has(job.stage));
  const [pointed, setPointed] = useState<number | null>(null);
  const handle = useRef<LogListHandle | null>(null);
  const text = useDeferredValue(written.toLowerCase());
  const shownLogs = useMemo(() => readChosen(chosen, logs), [chosen, logs]);
  const stream = useLogs(job.id, {
    hasDriver: shownLogs.has("driver"),
    numBytes: files.reduce((sum, file) => sum + file.num_bytes, 0),
  });
  const { book } = stream;

  const filter = { logs: shownLogs, level: level as Level, text };
  const numbers = useFiltered(stream, { ...filter, isOnlyText });
  const found = useFiltered(stream, { ...filter, isOnlyText: true });
  const hits = text ? found : NO_LINES;
  const point = useCallback((number: number) => {
    setFollowing(false);
    setPointed(number);
    handle.current?.show(number);
  }, []);
  const step = (by: 1 | -1) => {
    if (!hits.length) return;
    const from = pointed ?? -1;
    const next = by > 0 ? hits.find((hit) => hit > from) : hits.findLast((hit) => hit < from);
    point(next ?? (by > 0 ? (hits[0] as number) : (hits.at(-1) as number)));
  };
  const moment = useMoment(job.id, at, logs, stream);
  const moved = useRef("");
  useEffect(() => {
    if (moment.line === null || moved.current === at) return;
    const number = numbers[findPlace(numbers, moment.line)];
    if (number === undefined) return;
    moved.current = at;
    point(number);
  }, [moment.line, numbers, at, point]);
  const hitAt = pointed === null ? -1 : hits.indexOf(pointed);

  return (
    <div className="card logs">
      <div className="logs-bar">
        <div className="logs-names" role="group" aria-label="Log">
          <Button isSmall look="plain" aria-pressed={!chosen} onClick={() => setChosen(null)}>
            All workers
          </Button>
          {logs.map((log) => (
            <Button
              key={log}
              isSmall
              look="plain"
              aria-pressed={chosen.split(",").includes(log)}
              onClick={() => setChosen(toggle(chosen, log))}
            >
              {log === "driver" ? "Driver" : log.replace("worker-", "Worker ")}
            </Button>
          ))}
        </div>
        <select
          className="input input-small logs-level"
          aria-label="Level"
          value={level}
          onChange={(event) => setLevel(event.currentTarget.value)}
        >
          {LEVELS.map((each) => (
            <option key={each.level} value={each.level}>
              {each.label}
            </option>
          ))}
        </select>
        <div className="logs-search">
          <Icon name="search" size={14} />
          <input
            className="input input-small"
            type="search"
            aria-label="Search logs"
            placeholder="Search"
            value={written}
            onChange={(event) => {
              setWritten(event.currentTarget.value || null);
              setPointed(null);
            }}
            onKeyDown={(event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1)}
          />
          {text && (
            <>
              <span className="quiet small number logs-hits" aria-live="polite">
                {hits.length
                  ? `${hitAt >= 0 ? `${formatCount(hitAt + 1)} of ` : ""}${formatCount(hits.length)}`
                  : "none"}
              </span>
              <Button isSmall look="plain" icon="arrowUp" aria-label="Previous match" onClick={() => step(-1)} />
              <Button isSmall look="plain" icon="arrowDown" aria-label="Next match" onClick={() => step(1)} />
              <Button
                isSmall
                look="plain"
                icon="filter"
                aria-label="Show matching lines only"
                aria-pressed={isOnlyText}
                onClick={() => setOnlyText(!isOnlyText)}
              />
            </>
          )}
        </div>
        <span className="grow" />
        <Downloads job={job.id} logs={logs} />
        <Button isSmall icon="follow" aria-pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>
          {stream.isOver ? "Go to end" : "Follow"}
        </Button>
      </div>
      {at && (
        <div className="logs-moment tone-info">
          <Icon name="clock" size={14} />
          <span className="grow">{moment.told}</span>
          <Button isSmall look="plain" icon="cross" aria-label="Clear the selected time" onClick={() => setAt(null)} />
        </div>
      )}
      {!stream.isWhole && (
        <Note tone="warn">
          Showing only the newest lines of these large logs. Download the full log to see the others.
        </Note>
      )}
      {stream.isBroken && <Note tone="warn">Connection to the logs lost; reconnecting…</Note>}
      {book.lines.length === 0 ? (
        <NothingWritten job={job} isOver={stream.isOver} />
      ) : numbers.length === 0 ? (
        <Empty icon="filter" title="No matching lines">
          Choose another level or worker, or search for something else.
        </Empty>
      ) : (
        <LogList
          book={book}
          numbers={numbers}
          text={text}
          pointed={pointed}
          isFollowing={isFollowing}
          onFollow={setFollowing}
          handle={handle}
          hasNames={shownLogs.size !== 1}
        />
      )}
      <div className="logs-foot quiet small number">
        {sayCount(numbers.length, book.countLines(shownLogs), stream.isWhole && book.numGone === 0)}
        {book.numGone > 0 && ` · ${formatCount(book.numGone)} older lines only in the download`}
        {!stream.isOver && !stream.isBroken && " · live"}
      </div>
    </div>
  );
}

/** Return how many lines are shown; of logs of which only the end is here, their whole number is not known. */
export function sayCount(num: number, numRead: number, isWhole: boolean): string {
  if (numRead === 0) return "No lines";
  const all = isWhole ? countOf(numRead, "line") : `the newest ${countOf(numRead, "line")}`;
  return num === numRead && !isWhole ? `The newest ${countOf(numRead, "line")}` : `${formatCount(num)} of ${all}`;
}

function NothingWritten({ job, isOver }: { job: Job; isOver: boolean }) {
  const toCharts = (
    <Link to={`/jobs/${job.id}`} query={{ tab: "charts" }}>
      Show charts
    </Link>
  );
  return (
    <Empty icon="file" title={isOver ? "No output" : "No output yet"} action={job.progress?.step ? toCharts : null}>
      {job.progress?.step ? "The program printed nothing. Its metrics are under Charts." : null}
    </Empty>
  );
}

const NO_LINES: readonly number[] = [];

/** Return the numbers of the lines that fit; of a book that goes on only what is new is looked at. */
function useFiltered({ book, version }: { book: LogBook; version: number }, filter: LogFilter): readonly number[] {
  const { logs, level, text, isOnlyText } = filter;
  const lines = useMemo(
    () => new FilteredLines(book, { logs, level, text, isOnlyText }),
    [book, logs, level, text, isOnlyText],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: the book changes inside; its version says when
  return useMemo(() => lines.read(), [lines, version]);
}

/** The driver last; workers by their numbers. */
function sortLogs(logs: readonly string[]): string[] {
  return [...logs].sort(
    (one, other) =>
      Number(one === "driver") - Number(other === "driver") || one.localeCompare(other, "en", { numeric: true }),
  );
}

function readChosen(chosen: string, logs: readonly string[]): ReadonlySet<string> {
  const named = chosen.split(",").filter((log) => logs.includes(log));
  return new Set(named.length ? named : logs.filter((log) => log !== "driver" || logs.length === 1));
}

function toggle(chosen: string, log: string): string | null {
  const now = chosen.split(",").filter(Boolean);
  return (now.includes(log) ? now.filter((each) => each !== log) : [...now, log]).join(",") || null;
}

interface Moment {
  /** The number of the line; null: not known (yet). */
  line: number | null;
  told: string;
}

function useMoment(job: string, at: string, logs: readonly string[], stream: ReturnType<typeof useLogs>): Moment {
  const time = Number(at);
  const [offsets, setOffsets] = useState<ReadonlyMap<string, number> | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!at) return;
    let isGone = false;
    setOffsets(null);
    setProblem("");
    findMoment(job, logs, time)
      .then((found) => !isGone && setOffsets(found))
      .catch(() => !isGone && setProblem("No log lines at this time."));
    return () => {
      isGone = true;
    };
  }, [job, at, time, logs]);
  const { book, version } = stream;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the book changes inside; its version says when
  return useMemo(() => {
    if (!at) return { line: null, told: "" };
    if (problem) return { line: null, told: problem };
    if (!stream.isWhole) return { line: null, told: "These logs are too large to search by time. Download them." };
    const found = [...(offsets ?? [])].map(([log, offset]) => book.find(log, offset)).filter((line) => line >= 0);
    const line = found.length ? Math.max(...found) : null;
    return { line, told: `Output around ${formatTime(time)}` };
  }, [at, problem, offsets, book, version, time, stream.isWhole]);
}

function Downloads({ job, logs }: { job: string; logs: readonly string[] }) {
  const toasts = useToasts();
  const save = (log: string) =>
    readWhole(job, log).then((whole) => saveAs(whole, `${job}-${log}.log`), toasts.tellProblem);
  return (
    <Menu
      label={null}
      name="Download logs"
      icon="download"
      look="plain"
      isSmall
      items={logs.map((log) => ({ label: `${log}.log`, onPick: () => void save(log) }))}
    />
  );
}
