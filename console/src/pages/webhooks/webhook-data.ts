/** Webhooks in words, and as the server takes them. Pure. */

import type { components } from "@/api/schema";
import { countOf } from "@/format/numbers";

export type Webhook = components["schemas"]["Webhook"];
export type Delivery = components["schemas"]["Delivery"];

/** How the receiver of a webhook does. */
export interface Health {
  word: string;
  tone: "good" | "warn" | "bad" | "quiet";
  /** A sentence with all that is known; empty: the word says it. */
  told: string;
}

/** Return how the receiver does: what it did last, and what it has never got. */
export function healthOf(webhook: Webhook): Health {
  const lost = [
    ...(webhook.num_failed ? [`${countOf(webhook.num_failed, "message")} given up`] : []),
    ...(webhook.num_dropped ? [`${countOf(webhook.num_dropped, "message")} dropped`] : []),
  ];
  if (webhook.error === null) {
    if (webhook.tried_at === null) return { word: "Not called yet", tone: "quiet", told: sentence(lost) };
    return { word: "Working", tone: "good", told: sentence(lost) };
  }
  const isDead = lost.length > 0;
  return {
    word: isDead ? "Not working" : "Last try failed",
    tone: isDead ? "bad" : "warn",
    told: sentence([webhook.error, ...lost]),
  };
}

function sentence(parts: readonly string[]): string {
  const told = parts.join("; ");
  return told && `${told.charAt(0).toUpperCase()}${told.slice(1)}.`;
}

/** Return when a webhook is called, in words. */
export function sayConditions(webhook: Webhook): string {
  const told = [
    ...(webhook.on.includes("ended") ? ["ended"] : []),
    ...(webhook.on.includes("failed") ? ["failed"] : []),
    ...(webhook.below_workers === null ? [] : [`below ${countOf(webhook.below_workers, "worker")}`]),
    ...(webhook.waiting_s === null ? [] : [`waiting for ${sayTime(webhook.waiting_s)}`]),
  ];
  return told.join(", ");
}

export const UNITS = [
  { value: "3600", label: "hours" },
  { value: "60", label: "minutes" },
  { value: "1", label: "seconds" },
] as const;

/** Return a time in the largest unit in which it is a whole number. */
export function splitTime(time_s: number): { num: string; unit: string } {
  const unit = UNITS.find(({ value }) => time_s % Number(value) === 0)?.value ?? "1";
  return { num: String(time_s / Number(unit)), unit };
}

function sayTime(time_s: number): string {
  const { num, unit } = splitTime(time_s);
  const word = UNITS.find(({ value }) => value === unit)?.label ?? "seconds";
  return `${num} ${num === "1" ? word.slice(0, -1) : word}`;
}

/** What the fields of the dialog say. */
export interface Draft {
  url: string;
  project: string;
  onEnded: boolean;
  onFailed: boolean;
  /** Empty: not this condition. */
  below: string;
  waiting: string;
  unit: string;
}

/** Return the fields for a webhook; null: a new one, for the jobs of a project if one is given. */
export function makeDraft(webhook: Webhook | null, project = ""): Draft {
  const time = webhook?.waiting_s == null ? { num: "", unit: "3600" } : splitTime(webhook.waiting_s);
  return {
    url: webhook?.url ?? "",
    project: webhook ? (webhook.project ?? "") : project,
    onEnded: webhook?.on.includes("ended") ?? false,
    onFailed: webhook ? webhook.on.includes("failed") : true,
    below: webhook?.below_workers == null ? "" : String(webhook.below_workers),
    waiting: time.num,
    unit: time.unit,
  };
}

export interface Body {
  url: string;
  project: string | null;
  on: ("ended" | "failed")[];
  below_workers: number | null;
  waiting_s: number | null;
}

/** Return what the server gets; a string is what is wrong with the fields. */
export function readDraft(draft: Draft): Body | string {
  const [below, waiting] = [draft.below.trim(), draft.waiting.trim()];
  if (!draft.url.trim()) return "Enter a URL.";
  if (below && !/^[1-9]\d*$/.test(below)) return "Enter a whole number of workers, or leave the field empty.";
  if (waiting && !(Number(waiting) > 0)) return "Enter a time larger than 0, or leave the field empty.";
  const on: Body["on"] = [
    ...(draft.onEnded ? (["ended"] as const) : []),
    ...(draft.onFailed ? (["failed"] as const) : []),
  ];
  if (!on.length && !below && !waiting) return "Choose at least one condition.";
  return {
    url: draft.url.trim(),
    project: draft.project || null,
    on,
    below_workers: below ? Number(below) : null,
    waiting_s: waiting ? Number(waiting) * Number(draft.unit) : null,
  };
}

/** Return the fields that differ: what others change meanwhile stays. */
export function findChanges(webhook: Webhook, body: Body): Partial<Body> {
  const before: Body = {
    url: webhook.url,
    project: webhook.project,
    on: (["ended", "failed"] as const).filter((one) => webhook.on.includes(one)),
    below_workers: webhook.below_workers,
    waiting_s: webhook.waiting_s,
  };
  const names = Object.keys(before) as (keyof Body)[];
  return Object.fromEntries(
    names
      .filter((name) => JSON.stringify(body[name]) !== JSON.stringify(before[name]))
      .map((name) => [name, body[name]]),
  );
}
