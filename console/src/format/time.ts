/** Times and durations as people read them. All times are seconds since 1970, in the browser's own time zone. */

// Made once: making one takes longer than all that is done with it.
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const WITHOUT_YEAR = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});
const WITH_YEAR = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** By so much the clocks of a server and of a browser may differ. */
const CLOCKS_DIFFER_S = 600;
const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86400;

/** Return a duration with its two largest units: `41 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`. */
export function formatDuration(duration_s: number | null | undefined): string {
  if (duration_s === null || duration_s === undefined || !Number.isFinite(duration_s)) return "–";
  const whole = Math.max(0, duration_s);
  if (whole < 1) return "0 s";
  if (whole < MINUTE_S) return `${Math.floor(whole)} s`;
  if (whole < HOUR_S) return join(whole, MINUTE_S, "min", 1, "s");
  if (whole < DAY_S) return join(whole, HOUR_S, "h", MINUTE_S, "min");
  return join(whole, DAY_S, "d", HOUR_S, "h");
}

/** Return a duration with its largest unit alone, for where there is little room: `41 s`, `3 min`, `2 h`. */
export function formatRough(duration_s: number): string {
  const whole = Math.max(0, duration_s);
  if (whole < MINUTE_S) return `${Math.floor(whole)} s`;
  if (whole < HOUR_S) return `${Math.floor(whole / MINUTE_S)} min`;
  if (whole < 2 * DAY_S) return `${Math.floor(whole / HOUR_S)} h`;
  return `${Math.floor(whole / DAY_S)} days`;
}

function join(duration_s: number, large_s: number, large: string, small_s: number, small: string): string {
  const first = Math.floor(duration_s / large_s);
  const second = Math.floor((duration_s % large_s) / small_s);
  return second ? `${first} ${large} ${second} ${small}` : `${first} ${large}`;
}

/** Return how long ago something was, or how long it will take: `just now`, `3 min ago`, `in 2 h`. */
export function formatAgo(time: number | null | undefined, now: number): string {
  if (time === null || time === undefined) return "–";
  const passed = now - time;
  if (Math.abs(passed) < 5) return "just now";
  const told = formatRough(Math.abs(passed));
  return passed > 0 ? `${told} ago` : `in ${told}`;
}

/** Return how long ago something was that has happened: a clock that is a little ahead of this one makes it `just now`. */
export function formatSince(time: number | null | undefined, now: number): string {
  if (time === null || time === undefined) return "–";
  return formatAgo(time > now && time - now <= CLOCKS_DIFFER_S ? now : time, now);
}

/** Return the time of day, and the date too unless it is today's: `14:03:22`, `3 Nov 14:03`. */
export function formatTime(time: number | null | undefined, now: number = Date.now() / 1000): string {
  if (time === null || time === undefined) return "–";
  const at = new Date(time * 1000);
  const today = new Date(now * 1000);
  if (at.toDateString() === today.toDateString()) return CLOCK.format(at);
  return (at.getFullYear() === today.getFullYear() ? WITHOUT_YEAR : WITH_YEAR).format(at);
}

/** Return date and time to the second, for titles. */
export function formatFullTime(time: number | null | undefined): string {
  if (time === null || time === undefined) return "–";
  return FULL.format(new Date(time * 1000));
}
