/** Who is logged in. Asks the server once at the start; shows the page to log in whenever nobody is. */

import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useState } from "react";
import { API, onLoggedOut, send, setCsrf } from "@/api/client";
import { Problem } from "@/api/problems";
import type { Role } from "@/api/types";

export interface Session {
  name: string;
  role: Role;
  csrf: string;
  expires_at: number | null;
}

export type Credentials = { user: string; password: string } | { token: string } | { code: string };

type State = { is: "asking" } | { is: "away" } | { is: "out"; wasIn: boolean } | { is: "in"; session: Session };

interface SessionDoor {
  state: State;
  logIn: (given: Credentials) => Promise<Session>;
  logOut: () => Promise<void>;
  retry: () => void;
}

const Context = createContext<SessionDoor | null>(null);
const ADDRESS = `${API}/session`;

/** Give the session to all pages inside. */
export function SessionProvider({ children }: { children: ReactNode }) {
  const [state, setState] = useState<State>({ is: "asking" });
  const [numTries, setNumTries] = useState(0);
  const queries = useQueryClient();

  const enter = useCallback((session: Session) => {
    setCsrf(session.csrf);
    setState({ is: "in", session });
  }, []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: numTries asks again
  useEffect(() => {
    let isOver = false;
    readSession()
      .then((session) => {
        if (isOver) return;
        if (session) enter(session);
        else setState({ is: "out", wasIn: false });
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
    const timer = window.setTimeout(() => setNumTries((before) => before + 1), 3000);
    return () => window.clearTimeout(timer);
  }, [state]);

  useEffect(
    () =>
      onLoggedOut(() => {
        setCsrf(null);
        setState((before) => (before.is === "in" ? { is: "out", wasIn: true } : before));
      }),
    [],
  );

  const door = useMemo<SessionDoor>(
    () => ({
      state,
      async logIn(given) {
        const answer = await send("POST", ADDRESS, {
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(given),
        });
        const session = (await answer.json()) as Session;
        // What somebody else saw is not for who comes now.
        queries.clear();
        enter(session);
        return session;
      },
      async logOut() {
        await send("DELETE", ADDRESS).catch((thrown: unknown) => {
          if (!(thrown instanceof Problem && thrown.status === 401)) throw thrown;
        });
        setCsrf(null);
        queries.clear();
        setState({ is: "out", wasIn: false });
      },
      retry: () => setNumTries((before) => before + 1),
    }),
    [state, enter, queries],
  );
  return <Context.Provider value={door}>{children}</Context.Provider>;
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

/** Return who is logged in. Only for pages that are shown to nobody else. */
export function useSession(): Session {
  const { state } = useSessionDoor();
  if (state.is !== "in") throw new Error("Nobody is logged in");
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
