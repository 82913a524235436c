/** All slots of the pool, machine by machine: who has each, since when, and which are being left. */

import { type CSSProperties, type KeyboardEvent, type ReactNode, useRef, useState } from "react";
import type { Job } from "@/api/types";
import { countOf } from "@/format/numbers";
import { formatFullTime, formatSince } from "@/format/time";
import { jobColour, jobMark, Swatch } from "@/parts/colour";
import { useNow } from "@/parts/now";
import { Link } from "@/router/router";
import { type SlotState, titleOf } from "./pool-data";

interface SlotMapProps {
  slots: readonly SlotState[];
  jobs: ReadonlyMap<string, Job>;
  /** The job that is pointed at anywhere on the page. */
  lit: string | null;
  onLight: (job: string | null) => void;
  /** Shows more about a machine below its slots. */
  about?: (node: string) => ReactNode;
}

type Kind = "free" | "held" | "leaving" | "hidden" | "broken";

/** Return how a slot stands. */
export function kindOf(slot: SlotState): Kind {
  if (slot.release_asked_at !== null) return "leaving";
  if (slot.job !== null) return "held";
  if (slot.unusable_since !== null) return "broken";
  return slot.is_free ? "free" : "hidden";
}

/** Return slots by machine, both in their natural order. */
export function groupByNode(slots: readonly SlotState[]): [string, SlotState[]][] {
  const nodes = new Map<string, SlotState[]>();
  for (const slot of slots) {
    const found = nodes.get(slot.node);
    if (found) found.push(slot);
    else nodes.set(slot.node, [slot]);
  }
  const compare = (one: string, other: string) => one.localeCompare(other, "en", { numeric: true });
  for (const found of nodes.values()) found.sort((one, other) => compare(one.id, other.id));
  return [...nodes].sort(([one], [other]) => compare(one, other));
}

/** Say how many slots of a machine are in use, or why the machine cannot be used. */
export function sayUse(slots: readonly SlotState[]): string {
  const why = new Set(slots.map((slot) => slot.unusable_reason));
  const [only] = why;
  const held = slots.filter((slot) => slot.job !== null || (!slot.is_free && slot.unusable_since === null)).length;
  const use = `${held} of ${slots.length} in use`;
  if (why.size > 1 || !only) return use;
  return held > 0 ? `${use}; not used any more: ${only}` : `not used: ${only}`;
}

/** The map. One stop of the Tab key; arrows go from slot to slot. */
export function SlotMap({ slots, jobs, lit, onLight, about }: SlotMapProps) {
  const [chosen, setChosen] = useState<string | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const nodes = groupByNode(slots);
  const order = nodes.flatMap(([, ofNode]) => ofNode);
  const current = order.find((slot) => slot.id === chosen) ?? null;
  const stop = current ?? order[0];
  const look = (slot: SlotState | null) => {
    setChosen(slot?.id ?? null);
    onLight(slot?.job ?? null);
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const place = order.findIndex((slot) => slot.id === stop?.id);
    const next = order[(place + step + order.length) % order.length];
    box.current?.querySelector<HTMLElement>(`[data-slot="${CSS.escape(next?.id ?? "")}"]`)?.focus();
  };
  return (
    <div className="slots" ref={box}>
      {nodes.map(([node, ofNode]) => (
        <div key={node} className="slots-node">
          <div className="slots-name">
            <span className="cut" title={node}>
              {node}
            </span>
            <span className="quiet small">{sayUse(ofNode)}</span>
          </div>
          <div className="slots-squares" role="group" aria-label={`Slots of ${node}`} onKeyDown={press}>
            {ofNode.map((slot) => (
              <button
                key={slot.id}
                type="button"
                className="slot"
                data-slot={slot.id}
                data-kind={kindOf(slot)}
                data-mark={slot.job === null ? undefined : jobMark(slot.job)}
                data-dim={lit !== null && slot.job !== lit ? "" : undefined}
                style={slot.job === null ? undefined : ({ "--slot": jobColour(slot.job) } as CSSProperties)}
                aria-label={sayShort(slot, jobs)}
                tabIndex={slot.id === stop?.id ? 0 : -1}
                onPointerEnter={() => look(slot)}
                onPointerLeave={() => onLight(null)}
                onFocus={() => look(slot)}
                onBlur={() => onLight(null)}
              >
                {/\d+$/.exec(slot.id)?.[0].slice(-3)}
              </button>
            ))}
          </div>
          {about?.(node)}
        </div>
      ))}
      <div className="slots-said" aria-live="polite">
        {current ? (
          <Said slot={current} jobs={jobs} />
        ) : (
          <span className="quiet">Hover over a slot to see its job.</span>
        )}
      </div>
      <Legend slots={slots} />
    </div>
  );
}

function sayShort(slot: SlotState, jobs: ReadonlyMap<string, Job>): string {
  const holder = slot.job === null ? null : jobs.get(slot.job);
  const who = holder ? titleOf(holder) : (slot.job ?? "another user");
  const words: Record<Kind, string> = {
    free: "free",
    held: `used by ${who}`,
    leaving: `being freed by ${who}`,
    hidden: "used by another user",
    broken: "unavailable",
  };
  return `${slot.id}: ${words[kindOf(slot)]}`;
}

function Said({ slot, jobs }: { slot: SlotState; jobs: ReadonlyMap<string, Job> }) {
  const now = useNow();
  const kind = kindOf(slot);
  const holder = slot.job === null ? null : jobs.get(slot.job);
  return (
    <>
      <strong>{slot.id}</strong>{" "}
      {slot.job !== null && (
        <>
          <Swatch id={slot.job} /> <Link to={`/jobs/${slot.job}`}>{holder ? titleOf(holder) : slot.job}</Link>{" "}
        </>
      )}
      {kind === "free" && "is free"}
      {kind === "hidden" && "is used by a job that you may not see"}
      {slot.since !== null && (
        <span title={formatFullTime(slot.since)}>
          {kind === "hidden" ? ", " : ""}since {formatSince(slot.since, now)}
        </span>
      )}
      {kind === "leaving" && <span>; release requested {formatSince(slot.release_asked_at, now)}</span>}
      {slot.unusable_since !== null && (
        <span>
          {" "}
          unavailable since {formatSince(slot.unusable_since, now)}: {slot.unusable_reason}
        </span>
      )}
    </>
  );
}

const KINDS: readonly { kind: Kind; label: string }[] = [
  { kind: "free", label: "free" },
  { kind: "held", label: "in use" },
  { kind: "leaving", label: "being freed" },
  { kind: "hidden", label: "used by another user" },
  { kind: "broken", label: "unavailable" },
];

function Legend({ slots }: { slots: readonly SlotState[] }) {
  const counts = new Map<Kind, number>();
  for (const slot of slots) counts.set(kindOf(slot), (counts.get(kindOf(slot)) ?? 0) + 1);
  return (
    <ul className="slots-legend small soft">
      {KINDS.filter(({ kind }) => counts.has(kind)).map(({ kind, label }) => (
        <li key={kind} className="row">
          <span className="slot slot-sample" data-kind={kind} aria-hidden="true" />
          <span>
            {countOf(counts.get(kind) ?? 0, "slot")} {label}
          </span>
        </li>
      ))}
    </ul>
  );
}
