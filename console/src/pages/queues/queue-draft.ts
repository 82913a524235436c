/** A queue as it is being changed, and what differs between the shares of now and those that would be. */

import type { components } from "@/api/schema";
import type { QueueState } from "@/api/types";
import { type FieldErrors, readNames } from "@/pages/projects/project-data";

type Share = components["schemas"]["QueuePart"];

export interface QueueDraft {
  name: string;
  weight: string;
  floor: string;
  ceiling: string;
  isOpen: boolean;
  members: readonly string[];
  /** What stands in the field for members, and is none of them yet. */
  typed: string;
}

export interface QueueWanted {
  name: string;
  weight: number;
  floor: number;
  ceiling: number | null;
  is_open: boolean;
  members: string[];
}

export const NEW_QUEUE: QueueDraft = {
  name: "",
  weight: "1",
  floor: "0",
  ceiling: "",
  isOpen: true,
  members: [],
  typed: "",
};

/** Return the draft of a queue as it is. */
export function draftOfQueue(queue: QueueState): QueueDraft {
  return {
    name: queue.name,
    weight: String(queue.weight),
    floor: String(queue.floor),
    ceiling: queue.ceiling === null ? "" : String(queue.ceiling),
    isOpen: queue.is_open,
    members: queue.members,
    typed: "",
  };
}

const WHOLE = /^\s*\d{1,9}\s*$/;

/** Return what can be seen to be wrong without asking the server. `taken`: names that a new queue cannot have. */
export function checkQueue(draft: QueueDraft, taken: readonly string[]): FieldErrors {
  const wrong: Record<string, string> = {};
  const name = draft.name.trim();
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(name)) {
    wrong.name = "Use 1 to 63 letters, digits, dots, dashes or underscores.";
  } else if (taken.includes(name)) wrong.name = "A queue with this name already exists.";
  if (!draft.weight.trim() || !(Number(draft.weight) > 0)) wrong.weight = "Enter a number above 0.";
  if (!WHOLE.test(draft.floor)) wrong.floor = "Enter a whole number, 0 or more.";
  if (draft.ceiling.trim()) {
    if (!WHOLE.test(draft.ceiling)) wrong.ceiling = "Enter a whole number, or leave empty.";
    else if (!wrong.floor && Number(draft.ceiling) < Number(draft.floor))
      wrong.ceiling = "Must not be below the floor.";
  }
  return wrong;
}

/** Return the queue that a draft without mistakes describes. */
export function bodyOfQueue(draft: QueueDraft): QueueWanted {
  return {
    name: draft.name.trim(),
    weight: Number(draft.weight),
    floor: Number(draft.floor),
    ceiling: draft.ceiling.trim() ? Number(draft.ceiling) : null,
    is_open: draft.isOpen,
    members: [...new Set([...draft.members, ...readNames(draft.typed)])],
  };
}

/** Return all queues as they would be with this one changed or added. */
export function withQueue(queues: readonly QueueState[], draft: QueueDraft): QueueWanted[] {
  const wanted = bodyOfQueue(draft);
  const others = queues.filter((queue) => queue.name !== wanted.name);
  return [...others.map((queue) => bodyOfQueue(draftOfQueue(queue))), wanted];
}

export interface ShareChange {
  queue: string;
  /** Null: there is none, or the policy does not divide by weight. */
  before: number | null;
  after: number | null;
}

/** Return the queues whose fair share would be another one, in slots with one digit behind the point. */
export function diffShares(now: readonly Share[], then: readonly Share[]): ShareChange[] {
  const before = new Map(now.map((share) => [share.queue, round(share.fair)]));
  return then
    .map((share) => ({ queue: share.queue, before: before.get(share.queue) ?? null, after: round(share.fair) }))
    .filter((change) => change.before !== change.after);
}

function round(slots: number | null): number | null {
  return slots === null ? null : Math.round(slots * 10) / 10;
}
