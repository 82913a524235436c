/** The allocation timeline: by what, how it is drawn, over which time; and who has what under the cursor. */

import { useMemo, useState } from "react";
import { formatDuration, formatTime } from "@/format/time";
import { Button } from "@/parts/button";
import { Card } from "@/parts/card";
import { keepApart, Swatch } from "@/parts/colour";
import { useNow } from "@/parts/now";
import { Segments } from "@/parts/segments";
import { Answered, Empty } from "@/parts/states";
import { go, Link, readRoute, useQueryValue, useRoute } from "@/router/router";
import { type By, boundsOf, gatherMoves, type Move, type Stretch, type Timeline, useTimeline } from "./pool-data";
import { type Look, stepsOf, TimelineChart } from "./timeline-chart";
import { valueAt } from "./timeline-geometry";

const RANGES = [
  { value: "300", label: "5 min" },
  { value: "900", label: "15 min" },
  { value: "3600", label: "1 h" },
  { value: "28800", label: "8 h" },
  { value: "86400", label: "1 day" },
  { value: "604800", label: "7 days" },
] as const;
const USUAL_RANGE = "300";
const KINDS = [
  { value: "job", label: "Jobs" },
  { value: "queue", label: "Queues" },
  { value: "owner", label: "Users" },
  { value: "project", label: "Projects" },
] as const;
const LOOKS = [
  { value: "lines", label: "Lines" },
  { value: "stacked", label: "Stacked" },
  { value: "gantt", label: "Gantt" },
] as const;
/** More lines than these are no picture any more: they are stacked, unless the user chooses another form. */
const MAX_LINES = 8;

/** Return the stretch of time that the address names. */
export function readStretch(query: URLSearchParams): Stretch {
  const since = Number(query.get("since"));
  const until = Number(query.get("until"));
  if (since > 0 && until > since) return { since, until };
  const span_s = Number(query.get("range") ?? USUAL_RANGE);
  return { span_s: Number.isFinite(span_s) && span_s > 0 ? span_s : Number(USUAL_RANGE) };
}

/** Return a stretch of time as text: `in the last 5 min`, `from 14:03:00 to 14:05:00`. */
export function sayStretch(stretch: Stretch): string {
  if (!("span_s" in stretch)) return `from ${formatTime(stretch.since)} to ${formatTime(stretch.until)}`;
  const known = RANGES.find(({ value }) => value === String(stretch.span_s));
  return `in the last ${known?.label ?? formatDuration(stretch.span_s)}`;
}

/** Return the shortest range up to now that can be chosen and holds all of a stretch and more; null: there is none. */
export function findWider(stretch: Stretch, now = Date.now() / 1000): { value: string; label: string } | null {
  const span_s = "span_s" in stretch ? stretch.span_s : now - stretch.since;
  return RANGES.find(({ value }) => Number(value) > span_s) ?? null;
}

/** Look at another stretch of time. */
export function setStretch(values: { range?: string; since?: number; until?: number }): void {
  const { path, query } = readRoute(window.location.hash);
  for (const name of ["range", "since", "until"]) query.delete(name);
  for (const [name, value] of Object.entries(values)) {
    if (value !== USUAL_RANGE) query.set(name, typeof value === "number" ? value.toFixed(1) : value);
  }
  go(path, query, true);
}

interface CardProps {
  moves: readonly Move[];
  lit: string | null;
  onLight: (key: string | null) => void;
}

/** The card with the timeline. */
export function TimelineCard({ moves, lit, onLight }: CardProps) {
  const { query } = useRoute();
  const stretch = readStretch(query);
  const [by, setBy] = useQueryValue("by", "job");
  const [look, setLook] = useQueryValue("look", "");
  const asked = useTimeline((by || "job") as By, stretch);
  const range = "span_s" in stretch ? String(stretch.span_s) : "";
  const usual = (asked.data?.items.length ?? 0) <= MAX_LINES ? "lines" : "stacked";
  const chosen = (look || usual) as Look;
  return (
    <Card
      title="Slot usage"
      className="pool-wide"
      tools={
        <>
          <Segments label="Group by" choices={KINDS} chosen={by} onChoose={setBy} />
          <Segments label="Chart type" choices={LOOKS} chosen={chosen} onChoose={setLook} />
          <Segments
            label="Time range"
            choices={RANGES}
            chosen={range}
            onChoose={(value) => setStretch({ range: value })}
          />
          {!("span_s" in stretch) && (
            <Button isSmall icon="play" onClick={() => setStretch({ range: USUAL_RANGE })}>
              Live
            </Button>
          )}
        </>
      }
    >
      <Answered asked={asked} what="the timeline">
        {(timeline) => (
          <TimelineView
            timeline={timeline}
            by={by as By}
            look={chosen}
            stretch={stretch}
            moves={moves}
            lit={lit}
            onLight={onLight}
          />
        )}
      </Answered>
    </Card>
  );
}

interface ViewProps extends CardProps {
  timeline: Timeline;
  by: By;
  look: Look;
  stretch: Stretch;
}

function TimelineView({ timeline, by, look, stretch, moves, lit, onLight }: ViewProps) {
  const now = useNow();
  const [cursor, setCursor] = useState<number | null>(null);
  const handovers = useMemo(() => gatherMoves(moves.filter((move) => move.from_title !== null)), [moves]);
  useMemo(() => keepApart(whoHoldsFirst(timeline)), [timeline]);
  const { since, until } = boundsOf(stretch, Math.max(now, timeline.until));
  if (timeline.items.length === 0) {
    return <Empty icon="clock" title="No slots in use in this time range" />;
  }
  return (
    <div className="stack">
      <TimelineChart
        timeline={timeline}
        look={look}
        since={since}
        until={until}
        moves={by === "job" ? handovers : []}
        lit={lit}
        cursor={cursor}
        onCursor={setCursor}
        onZoom={(from, to) => setStretch({ since: from, until: to })}
      />
      <Keys timeline={timeline} by={by} at={cursor ?? until} lit={lit} onLight={onLight} />
      <p className="small quiet">
        {cursor === null ? ("span_s" in stretch ? "Now" : formatTime(until)) : formatTime(cursor)}
        <span className="pool-hint"> · drag to zoom; the dashed line is the pool size</span>
      </p>
    </div>
  );
}

function whoHoldsFirst({ items }: Timeline): string[] {
  const holds = items.filter((item) => item.slots.at(-1));
  return [...new Set([...holds, ...items].map((item) => item.key))];
}

function Keys({
  timeline,
  by,
  at,
  lit,
  onLight,
}: {
  timeline: Timeline;
  by: By;
  at: number;
  lit: string | null;
  onLight: (key: string | null) => void;
}) {
  return (
    <ul className="timeline-keys">
      {timeline.items.map((item) => {
        const num = valueAt(stepsOf(item), at);
        const name = (
          <span className="cut" title={item.title}>
            {item.title}
          </span>
        );
        return (
          <li
            key={item.key}
            className="timeline-key"
            data-lit={lit === item.key ? "" : undefined}
            onPointerEnter={() => onLight(item.key)}
            onPointerLeave={() => onLight(null)}
          >
            <Swatch id={item.key} />
            {by === "job" && !item.isHidden ? (
              <Link to={`/jobs/${item.key}`} className="timeline-link">
                {name}
              </Link>
            ) : (
              name
            )}
            <strong className="number">{num}</strong>
          </li>
        );
      })}
    </ul>
  );
}
