/** The time as it passes, for pages that show how long things last. One clock ticks for all of them. */

import { useSyncExternalStore } from "react";
import { formatFullTime, formatSince } from "@/format/time";

let now = Math.floor(Date.now() / 1000);
let timer: number | undefined;
const hearers = new Set<() => void>();

function subscribe(told: () => void): () => void {
  hearers.add(told);
  timer ??= window.setInterval(() => {
    now = Math.floor(Date.now() / 1000);
    for (const each of hearers) each();
  }, 1000);
  return () => {
    hearers.delete(told);
    if (hearers.size > 0) return;
    window.clearInterval(timer);
    timer = undefined;
  };
}

/** Return the time in seconds since 1970, in steps of so many; its users are redrawn with each step. */
export function useNow(step_s = 1): number {
  return useSyncExternalStore(subscribe, () => Math.floor(now / step_s) * step_s);
}

/** How long ago something was; the whole date when pointed at. */
export function Ago({ time }: { time: number | null | undefined }) {
  const at = useNow();
  return <span title={formatFullTime(time)}>{formatSince(time, at)}</span>;
}
