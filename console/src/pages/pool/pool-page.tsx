/** The pool: who has which slots now, who had them, what belongs to whom, and who got slots and why. */

import { useMemo, useState } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { Card } from "@/parts/card";
import { keepApart } from "@/parts/colour";
import { Answered } from "@/parts/states";
import { Link, useRoute } from "@/router/router";
import { maySubmit, useSession } from "@/session/session";
import { ActiveJobs } from "./active-jobs";
import { Machine } from "./machine";
import { MachineUse } from "./machine-use";
import { Moves } from "./moves";
import { type PoolState, startedFirst, useMoves } from "./pool-data";
import { Shares } from "./shares";
import { SlotMap } from "./slot-map";
import { findWider, readStretch, sayStretch, setStretch, TimelineCard } from "./timeline-card";
import "./pool.css";

const SHOWN = ["queued", "starting", "running", "pausing", "paused", "stopping"] as const;
const MAX_JOBS = 1000;

/** The page. */
export default function PoolPage() {
  const session = useSession();
  const { query } = useRoute();
  const [lit, setLit] = useState<string | null>(null);
  const pool = useAsk(["pool"], "/pool", {}, { every_s: 15 });
  const slots = useAsk(["pool"], "/slots", {}, { every_s: 15 });
  const nodes = useAsk(["pool"], "/nodes", {}, { every_s: 15 });
  const jobs = useAsk(["jobs"], "/jobs", { query: { stage: [...SHOWN], limit: MAX_JOBS } }, { every_s: 5 });
  const shares = useAsk(["pool"], "/pool/shares", {}, { every_s: 10 });
  const stretch = readStretch(query);
  const wider = findWider(stretch);
  const moves = useMoves(stretch);
  const byId = useMemo(() => new Map((jobs.data?.items ?? []).map((job: Job) => [job.id, job])), [jobs.data]);
  useMemo(() => keepApart(startedFirst(jobs.data?.items ?? [])), [jobs.data]);
  const hasGpu = slots.data?.items.some((slot) => !/^cpu/i.test(slot.device)) ?? false;
  const machines = nodes.data?.items.some((node) => node.agent !== null) ? nodes.data.items : [];
  const about = (name: string) => {
    const node = nodes.data?.items.find((each) => each.name === name);
    return (
      node && (
        <>
          {machines.length > 0 && <Machine node={node} />}
          <MachineUse node={node} />
        </>
      )
    );
  };
  const moved = useMemo(() => moves.data?.items ?? [], [moves.data]);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Pool</h1>
        {pool.data && <Numbers pool={pool.data} />}
      </div>
      <div className="pool-grid">
        <Card title="Active jobs" isFlush className="pool-active">
          <Answered asked={jobs} what="the active jobs">
            {(answer) => (
              <ActiveJobs
                jobs={answer.items}
                slotWord={hasGpu ? "GPU slots" : "Slots"}
                maySubmit={maySubmit(session)}
              />
            )}
          </Answered>
        </Card>
        <Card title="Machines">
          <Answered asked={slots} what="the slots">
            {(answer) => (
              <>
                <SlotMap slots={answer.items} jobs={byId} lit={lit} onLight={setLit} about={about} />
                {machines
                  .filter((node) => !answer.items.some((slot) => slot.node === node.name))
                  .map((node) => (
                    <Machine key={node.name} node={node} isNamed />
                  ))}
              </>
            )}
          </Answered>
        </Card>
        <TimelineCard moves={moved} lit={lit} onLight={setLit} />
        <Card title={`Reallocations ${sayStretch(stretch)}`} isFlush className="pool-moves">
          <Answered asked={moves} what="the reallocations">
            {(answer) => (
              <Moves
                moves={answer.items}
                when={sayStretch(stretch)}
                wider={wider && { label: wider.label, onLook: () => setStretch({ range: wider.value }) }}
              />
            )}
          </Answered>
        </Card>
        <Card title="Fair shares" tools={<Link to="/queues">Queues</Link>}>
          <Answered asked={shares} what="the shares">
            {(answer) => <Shares shares={answer.items} numSlots={pool.data?.num_usable ?? 1} />}
          </Answered>
        </Card>
      </div>
    </div>
  );
}

function Numbers({ pool }: { pool: PoolState }) {
  const told: { label: string; num: number; title?: string }[] = [
    { label: "slots", num: pool.num_slots },
    { label: "in use", num: pool.num_usable - pool.num_free },
    { label: "free", num: pool.num_free },
    ...(pool.num_leaving ? [{ label: "being freed", num: pool.num_leaving }] : []),
    ...(pool.num_usable < pool.num_slots ? [{ label: "unavailable", num: pool.num_slots - pool.num_usable }] : []),
    { label: "running", num: (pool.jobs.running ?? 0) + (pool.jobs.starting ?? 0) },
    { label: "queued", num: pool.jobs.queued ?? 0 },
  ];
  return (
    <dl className="pool-numbers" title={pool.summary ?? undefined}>
      {told.map(({ label, num }) => (
        <div key={label}>
          <dd className="number">{num}</dd>
          <dt>{label}</dt>
        </div>
      ))}
    </dl>
  );
}
