/**
 * All jobs that are known on this page, from several answers: of each the newest version. What it lists never
 * changes in place; when a job was last told the same does, for that is nothing to draw.
 */

import type { Job } from "@/api/types";

interface Told {
  job: Job;
  /** The same, as another answer holds it: one that did not change holds it again, and it is not looked through. */
  again: Job;
  asked_ms: number;
}

export type JobBook = ReadonlyMap<string, Told>;

/**
 * Return the book with these jobs in it, as answered to a request of a given time; the same book if
 * nothing is new. What is older than what is known is left out.
 */
export function putJobs(book: JobBook, jobs: readonly Job[], asked_ms: number): JobBook {
  let next: Map<string, Told> | null = null;
  for (const job of jobs) {
    const known = (next ?? book).get(job.id);
    if (known && isSame(job, known)) {
      if (job !== known.job) known.again = job;
      known.asked_ms = Math.max(known.asked_ms, asked_ms);
      continue;
    }
    if (known && !isNewer(job, asked_ms, known)) continue;
    next ??= new Map(book);
    next.set(job.id, { job, again: job, asked_ms });
  }
  return next ?? book;
}

/** Return the book without a job. */
export function dropJob(book: JobBook, job: string): JobBook {
  if (!book.has(job)) return book;
  const next = new Map(book);
  next.delete(job);
  return next;
}

/** Return the book without the answers to requests from before a time. */
export function keepSince(book: JobBook, since_ms: number): JobBook {
  return new Map([...book].filter(([, told]) => told.asked_ms >= since_ms));
}

function isSame(job: Job, { job: known, again }: Told): boolean {
  if (job === known || job === again) return true;
  return job.version === known.version && JSON.stringify(job) === JSON.stringify(known);
}

function isNewer(job: Job, asked_ms: number, { job: known, asked_ms: known_ms }: Told): boolean {
  if (job.version !== known.version) return job.version > known.version;
  if ((job.progress?.time ?? 0) !== (known.progress?.time ?? 0)) {
    return (job.progress?.time ?? 0) > (known.progress?.time ?? 0);
  }
  // The version does not grow with slots and words: of these the later question knows more.
  return asked_ms >= known_ms;
}

/** Return the jobs in the order of the server: the newest first. */
export function listJobs(book: JobBook): Job[] {
  return [...book.values()]
    .map(({ job }) => job)
    .sort(
      (one, other) => other.submitted_at - one.submitted_at || (one.id < other.id ? 1 : one.id > other.id ? -1 : 0),
    );
}
