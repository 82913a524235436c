/** A text for the server, asked for only when the user pauses typing. */

import { useEffect, useState } from "react";

/** The server refuses a longer text to search for. */
export const MAX_SEARCH_CHARS = 255;
const TYPING_MS = 250;

/** Return a text as it was at the last pause in typing. */
export function useLater(text: string): string {
  const [later, setLater] = useState(text);
  useEffect(() => {
    const timer = window.setTimeout(() => setLater(text), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [text]);
  return later;
}
