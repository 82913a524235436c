/** The logs of a run as one stream, followed while the page is open. What is told twice after a lost connection stands once. */

import { useEffect, useState } from "react";
import { API } from "@/api/client";
import { LogBook } from "./log-book";

/** Logs that are larger together are read from their ends only. */
const MAX_WHOLE_BYTES = 24_000_000;
const TAIL_LINES = 20_000;
const AGAIN_MS = 5000;
const DRAW_EVERY_MS = 120;

export interface Logs {
  book: LogBook;
  /** Grows whenever the book has changed. */
  version: number;
  isWhole: boolean;
  /** The run has ended and all is told. */
  isOver: boolean;
  isBroken: boolean;
}

interface Options {
  logs: readonly string[];
  numBytes: number;
  tail?: number;
}

/** Follow these logs of a job; the same list of logs goes on with the same book. */
export function useLogs(job: string, { logs, numBytes }: Options): Logs {
  const [isWhole] = useState(() => numBytes <= MAX_WHOLE_BYTES);
  const [book, setBook] = useState(() => new LogBook(isWhole));
  const [version, setVersion] = useState(0);
  const [isOver, setOver] = useState(false);
  const [isBroken, setBroken] = useState(false);
  const [numTries, setNumTries] = useState(0);
  const names = logs.join("\n");

  // biome-ignore lint/correctness/useExhaustiveDependencies: numTries begins anew
  useEffect(() => {
    const begun = new LogBook(isWhole);
    setOver(false);
    const query = new URLSearchParams(names.split("\n").map((log) => ["log", log]));
    if (!isWhole) query.set("tail", String(TAIL_LINES));
    const stream = new EventSource(`${API}/jobs/${encodeURIComponent(job)}/logs?${query}`);
    let drawing: number | undefined;
    let again: number | undefined;
    const draw = () => {
      drawing ??= window.setTimeout(() => {
        drawing = undefined;
        setVersion((before) => before + 1);
      }, DRAW_EVERY_MS);
    };
    stream.addEventListener("log", (message) => {
      const told = JSON.parse((message as MessageEvent<string>).data) as { log: string; text: string };
      begun.add(told.log, told.text);
      draw();
    });
    stream.addEventListener("end", () => {
      stream.close();
      setOver(true);
      draw();
    });
    stream.onopen = () => {
      // Not before: while the server is away, what was read stays to be read.
      setBook(begun);
      setBroken(false);
    };
    stream.onerror = () => {
      // From the beginning: what stood behind the last id would be told a second time.
      stream.close();
      setBroken(true);
      window.clearTimeout(again);
      again = window.setTimeout(() => setNumTries((before) => before + 1), AGAIN_MS);
    };
    return () => {
      stream.close();
      window.clearTimeout(drawing);
      window.clearTimeout(again);
    };
  }, [job, names, isWhole, numTries]);

  return { book, version, isWhole, isOver, isBroken };
}
