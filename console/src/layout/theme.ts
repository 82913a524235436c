/** Light, dark, or as the system says; kept in this browser. */

import { useSyncExternalStore } from "react";

export type Theme = "light" | "dark" | "auto";
const KEY = "legato-theme";
const hearers = new Set<() => void>();
const system = typeof matchMedia === "function" ? matchMedia("(prefers-color-scheme: dark)") : null;

function readTheme(): Theme {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "auto";
  } catch {
    return "auto";
  }
}

/** Put the theme on the page; called once at the start, and when it changes. */
export function applyTheme(): void {
  const theme = readTheme();
  document.documentElement.dataset.theme = theme === "auto" ? (system?.matches ? "dark" : "light") : theme;
  for (const told of hearers) told();
}

system?.addEventListener?.("change", applyTheme);

/** Choose a theme. */
export function setTheme(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // A browser that keeps nothing shows it until the page is left.
  }
  document.documentElement.dataset.theme = theme;
  applyTheme();
}

function subscribe(told: () => void): () => void {
  hearers.add(told);
  return () => hearers.delete(told);
}

/** Return the theme that was chosen. */
export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, readTheme);
}

/** Return what the page looks like now; charts are redrawn when it changes. */
export function useLook(): "light" | "dark" {
  return useSyncExternalStore(subscribe, () => (document.documentElement.dataset.theme === "dark" ? "dark" : "light"));
}
