/** The logs of a job as one stream, followed while the page is open. Lines that arrive twice after a lost connection appear once. */

import { useEffect, useRef, useState } from "react";
import { makeAddress } from "@/api/client";
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
  /** The job has ended and all lines are read. */
  isOver: boolean;
  isBroken: boolean;
}

interface Options {
  /** The driver's log, too; once it was wanted it goes on. */
  hasDriver: boolean;
  numBytes: number;
}

/** Follow the logs of a job: of all its workers, also of those that come later, and the driver's. */
export function useLogs(job: string, { hasDriver, numBytes }: Options): Logs {
  const [isWhole] = useState(() => numBytes <= MAX_WHOLE_BYTES);
  const [begun, setBegun] = useState(() => new LogBook(isWhole));
  const [book, setBook] = useState(begun);
  const [version, setVersion] = useState(0);
  const [isBroken, setBroken] = useState(false);
  const [followsDriver, setFollowsDriver] = useState(hasDriver);
  if (hasDriver && !followsDriver) setFollowsDriver(true);

  const drawing = useRef<number | undefined>(undefined);
  const again = useRef<number | undefined>(undefined);
  const [hears] = useState(() => ({
    onAdded: () => {
      drawing.current ??= window.setTimeout(() => {
        drawing.current = undefined;
        setVersion((before) => before + 1);
      }, DRAW_EVERY_MS);
    },
    onBroken: () => {
      // From the beginning: lines after the last id would arrive a second time.
      setBroken(true);
      again.current ??= window.setTimeout(() => {
        again.current = undefined;
        setBegun(new LogBook(isWhole));
      }, AGAIN_MS);
    },
    onOpen: (opened: LogBook) => {
      // Not before: while the server is away, what was read stays to be read.
      setBook(opened);
      setBroken(false);
    },
  }));
  useEffect(
    () => () => {
      window.clearTimeout(drawing.current);
      window.clearTimeout(again.current);
      drawing.current = undefined;
      again.current = undefined;
    },
    [],
  );

  const tail = isWhole ? {} : { tail: TAIL_LINES };
  // Without a name those of all workers come, of new ones too: nothing is read again when there is another one.
  const areWorkersOver = useFollowed(makeAddress(PATH, { job }, tail), begun, hears);
  const driver = makeAddress(PATH, { job }, { log: "driver", ...tail });
  const isDriverOver = useFollowed(followsDriver ? driver : null, begun, hears);
  return { book, version, isWhole, isOver: areWorkersOver && (isDriverOver || !followsDriver), isBroken };
}

const PATH = "/jobs/{job}/logs";

interface Hears {
  onAdded: () => void;
  onBroken: () => void;
  onOpen: (book: LogBook) => void;
}

/** Write one stream into a book; return whether all lines are read. A new book begins a new stream. */
function useFollowed(address: string | null, book: LogBook, hears: Hears): boolean {
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    setOver(false);
    if (address === null) return;
    const stream = new EventSource(address);
    stream.addEventListener("log", (message) => {
      const told = JSON.parse((message as MessageEvent<string>).data) as { log: string; text: string };
      book.add(told.log, told.text);
      hears.onAdded();
    });
    stream.addEventListener("end", () => {
      stream.close();
      setOver(true);
    });
    stream.onopen = () => hears.onOpen(book);
    stream.onerror = () => {
      stream.close();
      hears.onBroken();
    };
    return () => stream.close();
  }, [address, book, hears]);
  return isOver;
}
