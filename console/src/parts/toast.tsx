/** Short messages at the edge of the page: what was done, or why not. */

import { createContext, type ReactNode, useCallback, useContext, useMemo, useRef, useState } from "react";
import { sayProblem } from "@/api/problems";
import { Button } from "./button";
import { Icon } from "./icon";

interface Toast {
  id: number;
  tone: "good" | "bad";
  text: string;
}

interface Toasts {
  tell: (text: string) => void;
  tellProblem: (thrown: unknown) => void;
  /** Do something, say that it was done or why it was not; returns whether it was. */
  attempt: (does: () => Promise<unknown>, done: string) => Promise<boolean>;
}

const SHOW_GOOD_MS = 4000;
const MAX_SHOWN = 4;
const Context = createContext<Toasts | null>(null);

/** Show messages of all pages inside. */
export function ToastProvider({ children }: { children: ReactNode }) {
  const [shown, setShown] = useState<Toast[]>([]);
  const next = useRef(0);
  const drop = useCallback((id: number) => setShown((before) => before.filter((toast) => toast.id !== id)), []);
  const add = useCallback(
    (tone: Toast["tone"], text: string) => {
      next.current += 1;
      const id = next.current;
      setShown((before) => [...before.filter((toast) => toast.text !== text), { id, tone, text }].slice(-MAX_SHOWN));
      // What went wrong stays until it was read.
      if (tone === "good") window.setTimeout(() => drop(id), SHOW_GOOD_MS);
    },
    [drop],
  );
  const toasts = useMemo<Toasts>(
    () => ({
      tell: (text) => add("good", text),
      tellProblem: (thrown) => add("bad", sayProblem(thrown)),
      async attempt(does, done) {
        try {
          await does();
        } catch (thrown) {
          add("bad", sayProblem(thrown));
          return false;
        }
        add("good", done);
        return true;
      },
    }),
    [add],
  );
  return (
    <Context.Provider value={toasts}>
      {children}
      <div className="toasts" role="log" aria-label="Notifications">
        {shown.map((toast) => (
          <div key={toast.id} className={`toast toast-${toast.tone}`} role={toast.tone === "bad" ? "alert" : "status"}>
            <Icon name={toast.tone === "good" ? "check" : "alert"} size={16} />
            <div className="grow">{toast.text}</div>
            <Button icon="cross" look="plain" isSmall aria-label="Dismiss" onClick={() => drop(toast.id)} />
          </div>
        ))}
      </div>
    </Context.Provider>
  );
}

/** Return how to tell something. */
export function useToasts(): Toasts {
  const toasts = useContext(Context);
  if (!toasts) throw new Error("There is no ToastProvider around this");
  return toasts;
}
