/** Reallocations: slots that jobs got and gave up, with the reasons, the newest first. */

import { useMemo } from "react";
import { countOf } from "@/format/numbers";
import { formatFullTime, formatTime } from "@/format/time";
import { Button } from "@/parts/button";
import { Swatch } from "@/parts/colour";
import { Icon } from "@/parts/icon";
import { Empty } from "@/parts/states";
import { Link } from "@/router/router";
import { gatherMoves, type Move } from "./pool-data";

/** A slot that was used or free for so long before the next job got it did not move at one time, in seconds. */
const LONG_S = 15;

interface MovesProps {
  moves: readonly Move[];
  /** The time that is looked at, such as `in the last 5 min`. */
  when: string;
  /** Looks further back. */
  wider: { label: string; onLook: () => void } | null;
}

/** The list. */
export function Moves({ moves, when, wider }: MovesProps) {
  const gathered = useMemo(
    () => gatherMoves(moves.toSorted((one, other) => other.time - one.time)).slice(0, 50),
    [moves],
  );
  if (gathered.length === 0) {
    return (
      <Empty
        icon="resize"
        title={`No reallocations ${when}`}
        action={wider && <Button onClick={wider.onLook}>Show the last {wider.label}</Button>}
      >
        When a job gets or gives up slots, the reason appears here.
      </Empty>
    );
  }
  return (
    <ol className="moves">
      {gathered.map((move) => (
        <li key={`${move.time} ${move.slots[0]}`} className="move">
          <time className="quiet small number" title={formatFullTime(move.time)}>
            {formatTime(move.time)}
          </time>
          <div className="grow">
            <div className="row row-wrap">
              <Who job={move.from_job} title={move.from_title} ifNone="free" />
              <span className="chip" title={move.slots.join(", ")}>
                {countOf(move.slots.length, "slot")} <Icon name="chevronRight" size={11} />
                <span className="only-heard">to</span>
              </span>
              <Who job={move.to_job} title={move.to_title} ifNone="no job yet" />
              {typeof move.taken_at === "number" && move.taken_at - move.time >= LONG_S && (
                <span className="quiet small">at {formatTime(move.taken_at)}</span>
              )}
            </div>
            {move.reason && <div className="small soft">{move.reason}</div>}
            {move.taken_reason && <div className="small soft">{move.taken_reason}</div>}
          </div>
        </li>
      ))}
    </ol>
  );
}

function Who({ job, title, ifNone }: { job: string | null; title: string | null; ifNone: string }) {
  return (
    <span className="row move-who">
      {job !== null && <Swatch id={job} />}
      {job === null ? (
        <span className={title ? "cut" : "cut quiet"}>{title ?? ifNone}</span>
      ) : (
        <Link to={`/jobs/${job}`} className="cut" title={title ?? job}>
          {title}
        </Link>
      )}
    </span>
  );
}
