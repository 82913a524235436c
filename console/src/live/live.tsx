/** Keeps what pages show up to date: events of the one link tell what to ask again. */

import { type Query, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useRef, useState } from "react";
import type { PlatformEvent } from "@/api/types";
import { findOld } from "./effects";
import { Link, type LinkState } from "./link";

/** Events that come together, such as those of one round, are answered by one question. */
const GATHER_MS = 250;

/** A page that was not seen for so long lets its connection go; it catches up when it is looked at. */
const REST_AFTER_MS = 15_000;

type Hear = (event: PlatformEvent) => void;

interface Live {
  state: LinkState;
  /** Grows when nothing that was asked before holds any more. */
  numStores: number;
  hear: (told: Hear) => () => void;
}

const Context = createContext<Live>({ state: { is: "starting" }, numStores: 0, hear: () => () => {} });

/** Hold the link for all pages inside; there is one per page of the browser. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const [state, setState] = useState<LinkState>({ is: "starting" });
  const [numStores, setNumStores] = useState(0);
  const hearers = useRef(new Set<Hear>());

  useEffect(() => {
    const gathered = new Map<string, readonly string[]>();
    const cache = queries.getQueryCache();
    const old = new Set<Query>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const askAgain = () => {
      timer = undefined;
      for (const key of gathered.values()) for (const query of cache.findAll({ queryKey: key })) old.add(query);
      gathered.clear();
      for (const query of old) {
        // What is on its way is not broken off, or it would never come while events do; it is asked again afterwards.
        if (query.state.fetchStatus === "fetching") continue;
        old.delete(query);
        void queries.invalidateQueries({ queryKey: query.queryKey, exact: true });
      }
      if (old.size) timer = setTimeout(askAgain, GATHER_MS);
    };
    const link = new Link({
      onState: setState,
      onEvent: (event) => {
        for (const told of hearers.current) told(event);
        for (const key of findOld(event)) gathered.set(key.join("\n"), key);
        timer ??= setTimeout(askAgain, GATHER_MS);
      },
      onLinked: () => {
        const linkedAt = Date.now();
        void queries.invalidateQueries({ predicate: (query) => query.state.dataUpdatedAt < linkedAt });
      },
      onAnew: () => {
        setNumStores((before) => before + 1);
        void queries.resetQueries();
      },
    });
    const hurry = () => link.hurry();
    let resting: ReturnType<typeof setTimeout> | undefined;
    const look = () => {
      clearTimeout(resting);
      if (document.visibilityState === "visible") {
        link.wake();
        link.hurry();
      } else resting = setTimeout(() => link.rest(), REST_AFTER_MS);
    };
    link.open();
    document.addEventListener("visibilitychange", look);
    window.addEventListener("online", hurry);
    return () => {
      link.close();
      clearTimeout(timer);
      clearTimeout(resting);
      document.removeEventListener("visibilitychange", look);
      window.removeEventListener("online", hurry);
    };
  }, [queries]);

  const [hear] = useState(() => (told: Hear) => {
    hearers.current.add(told);
    return () => void hearers.current.delete(told);
  });
  return <Context.Provider value={{ state, numStores, hear }}>{children}</Context.Provider>;
}

/** Return how the link to the server is. */
export function useLinkState(): LinkState {
  return useContext(Context).state;
}

/** Return a number that grows when nothing that was asked before holds any more: the server's store was restored. */
export function useNumStores(): number {
  return useContext(Context).numStores;
}

/** Call `told` with each event while this is shown. */
export function useEvents(told: Hear): void {
  const { hear } = useContext(Context);
  const latest = useRef(told);
  latest.current = told;
  useEffect(() => hear((event) => latest.current(event)), [hear]);
}
