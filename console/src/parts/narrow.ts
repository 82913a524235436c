/** Whether the screen is that of a phone, where a row of a table is a card. */

import { useSyncExternalStore } from "react";

const NARROW = "(max-width: 640px)";

/** Return whether it is, as it changes. */
export function useNarrow(): boolean {
  return useSyncExternalStore(
    (onChange) => {
      const query = window.matchMedia(NARROW);
      query.addEventListener("change", onChange);
      return () => query.removeEventListener("change", onChange);
    },
    () => window.matchMedia(NARROW).matches,
  );
}
