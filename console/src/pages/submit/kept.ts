/**
 * What was typed and not yet sent: kept while this tab is open, also when another page is looked at or all of it is
 * reloaded. Before fields that cannot be stored are lost, such as files, the page asks the user.
 */

import { useCallback, useState } from "react";

const PREFIX = "legato-draft ";
const kept = new Map<string, object>();
const unwritten = new Map<string, readonly string[]>();

/**
 * As useState, but that the value is there again when the page is opened again under the same key.
 *
 * `leaves`: names of the fields that are not written down; null in them is nothing that could be lost.
 */
export function useKept<T extends object>(
  key: string,
  initial: () => T,
  leaves: readonly (keyof T & string)[] = [],
): [T, (change: Partial<T>) => void, () => void] {
  const [, draw] = useState(0);
  const [empty] = useState(initial);
  if (!kept.has(key)) kept.set(key, { ...initial(), ...readDraft(key) });
  unwritten.set(key, leaves);
  const change = useCallback(
    (values: Partial<T>) => {
      // A late change of a forgotten draft starts a new one, because half a draft could not be shown.
      const next = { ...empty, ...kept.get(key), ...values };
      kept.set(key, next);
      writeDraft(key, next);
      draw((before) => before + 1);
    },
    [key, empty],
  );
  const forget = useCallback(() => {
    kept.delete(key);
    writeDraft(key, null);
  }, [key]);
  return [kept.get(key) as T, change, forget];
}

/** Forget all drafts, also those from before a reload of the tab, because they are not for the next user. */
export function forgetAll(): void {
  kept.clear();
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
  } catch {
    // A browser that keeps nothing has nothing to forget.
  }
}

/** Return whether something is kept that would be lost if the tab were reloaded. */
export function wouldLose(): boolean {
  return [...kept].some(([key, values]) =>
    (unwritten.get(key) ?? []).some((name) => (values as Record<string, unknown>)[name]),
  );
}

window.addEventListener("beforeunload", (event) => {
  if (wouldLose()) event.preventDefault();
});

function readDraft(key: string): object {
  try {
    const told: unknown = JSON.parse(sessionStorage.getItem(PREFIX + key) ?? "{}");
    return typeof told === "object" && told !== null ? told : {};
  } catch {
    return {};
  }
}

function writeDraft(key: string, values: object | null): void {
  try {
    if (values === null) sessionStorage.removeItem(PREFIX + key);
    else {
      const left = new Set<string>(unwritten.get(key));
      const written = Object.entries(values).filter(([name]) => !left.has(name));
      sessionStorage.setItem(PREFIX + key, JSON.stringify(Object.fromEntries(written)));
    }
  } catch {
    // A browser that keeps nothing, or has no room, keeps it as long as the page is there.
  }
}
