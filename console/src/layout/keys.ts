/** The keys that work on every page, and which of them was pressed. Pure. */

/** What a key opens: the search of this page, the finder of pages and jobs, or the list of keys. */
export type KeyAction = "search" | "find" | "help";

/** The keys in words, for the list that `?` opens. */
export const KEYS: readonly { keys: readonly string[]; does: string }[] = [
  { keys: ["Ctrl", "K"], does: "Find a page or a job (on a Mac ⌘ K)" },
  { keys: ["/"], does: "Search on this page; where it has no search, find a job" },
  { keys: ["?"], does: "Show these keys" },
  { keys: ["↑", "↓"], does: "Move through a table, a menu or a list of matches" },
  { keys: ["Enter"], does: "Open the row or the match" },
  { keys: ["Esc"], does: "Close a dialog or a menu" },
];

interface Pressed {
  key: string;
  ctrlKey: boolean;
  metaKey: boolean;
  altKey: boolean;
  defaultPrevented: boolean;
}

/**
 * Return what a pressed key does, or null if it belongs to the page or the browser.
 *
 * `isTyping`: the focus is in a field, which gets all keys but Ctrl-K.
 */
export function readKey(event: Pressed, isTyping: boolean): KeyAction | null {
  if (event.defaultPrevented || event.altKey) return null;
  if (event.ctrlKey || event.metaKey)
    return event.key.toLowerCase() === "k" && event.ctrlKey !== event.metaKey ? "find" : null;
  if (isTyping) return null;
  if (event.key === "/") return "search";
  return event.key === "?" ? "help" : null;
}

/** Return whether an element takes what is typed. */
export function takesText(element: Element | null): boolean {
  if (!element) return false;
  if (element instanceof HTMLInputElement)
    return !["button", "checkbox", "radio", "range", "submit"].includes(element.type);
  return element.matches("textarea, select, [contenteditable]");
}
