/** Columns that users add to the table of jobs: notes, labels, metrics and parameters. Which ones stands in the address. */

import { useCallback, useMemo } from "react";
import { go, readRoute, useRoute } from "@/router/router";

export type Kind = "notes" | "labels" | "metric" | "parameter";

/** A column that was chosen: `{ kind: "metric", of: "val_acc" }`. */
export interface Extra {
  kind: Kind;
  /** The name of the metric or the parameter; empty for the others. */
  of: string;
}

const PLAIN: readonly Kind[] = ["notes", "labels"];
const KEY = "legato-job-columns";
/** More columns than these do not fit on any screen. */
export const MAX_EXTRAS = 12;

/** Return the name of a column, as it stands in the address: `notes`, `metric:val_acc`. */
export function nameOf({ kind, of }: Extra): string {
  return of ? `${kind}:${of}` : kind;
}

/** Return what a name of a column means; null: nothing. */
export function readExtra(name: string): Extra | null {
  if (PLAIN.includes(name as Kind)) return { kind: name as Kind, of: "" };
  const at = name.indexOf(":");
  const [kind, of] = [name.slice(0, at), name.slice(at + 1)];
  return (kind === "metric" || kind === "parameter") && of ? { kind, of } : null;
}

/** Return columns by their names, each once. */
export function readExtras(names: readonly string[]): Extra[] {
  return [...new Set(names)].flatMap((name) => readExtra(name) ?? []).slice(0, MAX_EXTRAS);
}

/** Return the names that this browser keeps. */
export function readKept(): string[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter((name): name is string => typeof name === "string") : [];
  } catch {
    return [];
  }
}

function keep(names: readonly string[]): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(names));
  } catch {
    // A browser that keeps nothing has the address still.
  }
}

/** Return the chosen columns, those of the address first, and how to choose others, which this browser keeps. */
export function useExtras(): [readonly Extra[], (next: readonly Extra[]) => void] {
  const { query } = useRoute();
  const written = query.has("column") ? JSON.stringify(query.getAll("column")) : null;
  const extras = useMemo(() => readExtras(written === null ? readKept() : JSON.parse(written)), [written]);
  const choose = useCallback((next: readonly Extra[]) => {
    const names = next.map(nameOf);
    keep(names);
    const { path, query } = readRoute(window.location.hash);
    query.delete("column");
    // An address without columns means those that are kept; an empty one means none.
    for (const name of names.length ? names : [""]) query.append("column", name);
    go(path, query, true);
  }, []);
  return [extras, choose];
}
