/** What was typed and not yet sent: kept while the page of the browser is open, also when another page is looked at. */

import { useCallback, useState } from "react";

const kept = new Map<string, unknown>();

/** As useState, but that the value is there again when the page is opened again under the same key. */
export function useKept<T>(key: string, initial: () => T): [T, (change: Partial<T>) => void, () => void] {
  const [, draw] = useState(0);
  if (!kept.has(key)) kept.set(key, initial());
  const change = useCallback(
    (values: Partial<T>) => {
      kept.set(key, { ...(kept.get(key) as T), ...values });
      draw((before) => before + 1);
    },
    [key],
  );
  const forget = useCallback(() => void kept.delete(key), [key]);
  return [kept.get(key) as T, change, forget];
}
