/**
 * Who is logged in. Asks the server at the start, and again when the page is looked at, when another tab says that
 * a user logged in or out, and when the server takes this page for a foreign one.
 */

import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useRef, useState } from "react";
import { API, onForeign, onLoggedOut, send, setCsrf, shutDoor } from "@/api/client";
import { Problem } from "@/api/problems";
import type { Role } from "@/api/types";
import { forgetAll } from "@/pages/submit/kept";

export interface Session {
  name: string;
  role: Role;
  csrf: string;
  expires_at: number | null;
}

export type Credentials = { user: string; password: string } | { token: string } | { code: string };

interface Inside {
  is: "in";
  session: Session;
  /** The session has ended; what the user sees and has typed stays where it is until the next log-in. */
  isOver: boolean;
  /** Another user than before, who logged in by another tab of this browser. */
  isFromOtherTab: boolean;
}

type State = { is: "asking" } | { is: "away" } | { is: "out" } | Inside;

interface SessionDoor {
  state: State;
  logIn: (given: Credentials) => Promise<Session>;
  logOut: () => Promise<void>;
  retry: () => void;
}

const Context = createContext<SessionDoor | null>(null);
const ADDRESS = `${API}/session`;
/** Other tabs hear when this changes. */
const TOLD_KEY = "legato-session";
const RETRY_EVERY_MS = 3000;

/** Give the session to all pages inside. */
export function SessionProvider({ children }: { children: ReactNode }) {
  const [state, setState] = useState<State>({ is: "asking" });
  const [numTries, setNumTries] = useState(0);
  const queries = useQueryClient();
  const latest = useRef<State>(state);
  latest.current = state;

  const enter = useCallback(
    (session: Session, isFromOtherTab = false) => {
      const before = latest.current;
      setCsrf(session.csrf);
      if (before.is === "in" && before.session.name === session.name) {
        if (before.isOver) void queries.invalidateQueries();
      }
      // Data of the previous user must not be shown to the next one.
      else queries.clear();
      setState({ is: "in", session, isOver: false, isFromOtherTab });
    },
    [queries],
  );
  const endSession = useCallback(() => {
    shutDoor();
    setState((before) => (before.is === "in" ? { ...before, isOver: true } : before));
  }, []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: numTries asks again
  useEffect(() => {
    let isOver = false;
    readSession()
      .then((session) => {
        if (isOver) return;
        if (session) enter(session);
        else setState({ is: "out" });
      })
      .catch(() => {
        if (!isOver) setState({ is: "away" });
      });
    return () => {
      isOver = true;
    };
  }, [enter, numTries]);

  useEffect(() => {
    if (state.is !== "away") return;
    const timer = window.setTimeout(() => setNumTries((before) => before + 1), RETRY_EVERY_MS);
    return () => window.clearTimeout(timer);
  }, [state]);

  useEffect(() => onLoggedOut(endSession), [endSession]);

  useEffect(() => {
    const look = async (): Promise<boolean> => {
      const before = latest.current;
      if (before.is !== "in" && before.is !== "out") return false;
      const session = await readSession().catch(() => undefined);
      // Unknown, or a user has logged in here in between.
      if (session === undefined || latest.current !== before) return true;
      if (before.is === "out") {
        if (session) enter(session);
        return false;
      }
      if (!session) endSession();
      const isSame = session?.name === before.session.name;
      if (session && (!isSame || before.isOver || !isEqual(session, before.session))) enter(session, !isSame);
      return isSame;
    };
    let looking: Promise<boolean> | null = null;
    const lookOnce = () => {
      looking ??= look().finally(() => {
        looking = null;
      });
      return looking;
    };
    const seen = () => void (document.visibilityState === "visible" && lookOnce());
    const heard = (event: StorageEvent) => void (event.key === TOLD_KEY && lookOnce());
    const stop = onForeign(lookOnce);
    window.addEventListener("focus", seen);
    document.addEventListener("visibilitychange", seen);
    window.addEventListener("storage", heard);
    return () => {
      stop();
      window.removeEventListener("focus", seen);
      document.removeEventListener("visibilitychange", seen);
      window.removeEventListener("storage", heard);
    };
  }, [enter, endSession]);

  const door = useMemo<SessionDoor>(
    () => ({
      state,
      async logIn(given) {
        const answer = await send("POST", ADDRESS, {
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(given),
        });
        const session = (await answer.json()) as Session;
        enter(session);
        tellOtherTabs();
        return session;
      },
      async logOut() {
        await send("DELETE", ADDRESS).catch((thrown: unknown) => {
          if (!(thrown instanceof Problem && thrown.status === 401)) throw thrown;
        });
        setCsrf(null);
        forgetAll();
        queries.clear();
        setState({ is: "out" });
        tellOtherTabs();
      },
      retry: () => setNumTries((before) => before + 1),
    }),
    [state, enter, queries],
  );
  return <Context.Provider value={door}>{children}</Context.Provider>;
}

function isEqual(one: Session, other: Session): boolean {
  return one.csrf === other.csrf && one.role === other.role;
}

function tellOtherTabs(): void {
  try {
    localStorage.setItem(TOLD_KEY, String(Date.now()));
  } catch {
    // In a browser that keeps nothing they look when they are looked at.
  }
}

async function readSession(): Promise<Session | null> {
  try {
    return (await (await send("GET", ADDRESS)).json()) as Session;
  } catch (thrown) {
    if (thrown instanceof Problem && thrown.status === 401) return null;
    throw thrown;
  }
}

/** Return the door of the session: its state, and how to log in and out. */
export function useSessionDoor(): SessionDoor {
  const door = useContext(Context);
  if (!door) throw new Error("There is no SessionProvider around this");
  return door;
}

/** Return the user who is logged in. Only for pages that need a session. */
export function useSession(): Session {
  const { state } = useSessionDoor();
  if (state.is !== "in") throw new Error("No user is logged in");
  return state.session;
}

/** Return whether who is logged in may change this job; the server decides in any case. */
export function mayChange(session: Session, owner: string): boolean {
  return session.role === "admin" || (session.role === "user" && session.name === owner);
}

/** Return whether who is logged in may start anything. */
export function maySubmit(session: Session): boolean {
  return session.role !== "viewer";
}
