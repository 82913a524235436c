/** The sweeps: searches for the best parameters of programs. */

import { useState } from "react";
import { useAsk } from "@/api/queries";
import type { Stage, Sweep } from "@/api/types";
import { Button } from "@/parts/button";
import { Ago } from "@/parts/now";
import { StageBadge } from "@/parts/stage";
import { Answered, Empty } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { go, Link } from "@/router/router";
import { maySubmit, useSession } from "@/session/session";
import { NewSweepDialog } from "./sweep-dialog";

const COLUMNS: Column<Sweep>[] = [
  {
    name: "name",
    title: "Sweep",
    width: 120,
    grows: 2,
    sortBy: (sweep) => sweep.name,
    show: (sweep) => <Link to={`/sweeps/${sweep.id}`}>{sweep.name}</Link>,
  },
  {
    name: "stage",
    title: "Stage",
    width: 112,
    sortBy: (sweep) => sweep.stage,
    show: (sweep) => <StageBadge stage={sweep.stage as Stage} title={sweep.reason} />,
  },
  {
    name: "trials",
    title: "Trials",
    width: 76,
    isEnd: true,
    show: (sweep) => `${countTrials(sweep)} / ${sweep.num_trials}`,
  },
  { name: "metric", title: "Metric", width: 100, grows: 1, leaves: 3, show: (sweep) => sweep.metric.name },
  { name: "search", title: "Search", width: 80, leaves: 4, show: (sweep) => sweep.search },
  {
    name: "owner",
    title: "Owner",
    width: 90,
    grows: 1,
    leaves: 2,
    sortBy: (sweep) => sweep.owner,
    show: (sweep) => sweep.owner,
  },
  {
    name: "created",
    title: "Started",
    width: 110,
    leaves: 5,
    sortBy: (sweep) => sweep.created_at,
    show: (sweep) => <Ago time={sweep.created_at} />,
  },
];

/** The number of trials that a sweep has started. */
export function countTrials(sweep: Sweep): number {
  return Object.values(sweep.trials).reduce((sum, number) => sum + number, 0);
}

const keyOf = (sweep: Sweep) => sweep.id;

/** The page. */
export default function SweepsPage() {
  const sweeps = useAsk(["sweeps"], "/sweeps", {}, { every_s: 5 });
  const session = useSession();
  const [isStarting, setStarting] = useState(false);
  return (
    <div className="page page-full">
      <div className="page-head">
        <h1>Sweeps</h1>
        {maySubmit(session) && (
          <Button icon="plus" onClick={() => setStarting(true)}>
            New sweep
          </Button>
        )}
      </div>
      <Answered asked={sweeps} what="the sweeps">
        {(answer) => (
          <section className="card list-card" aria-label="Sweeps">
            <Table
              label="Sweeps"
              rows={answer.items}
              columns={COLUMNS}
              keyOf={keyOf}
              onOpen={(sweep) => go(`/sweeps/${sweep.id}`)}
              empty={
                <Empty title="No sweeps">
                  A sweep runs a program many times to find its best parameters. Start one here or on the command line:{" "}
                  <code>legato sweep sweep.yaml</code>
                </Empty>
              }
            />
          </section>
        )}
      </Answered>
      {isStarting && <NewSweepDialog onClose={() => setStarting(false)} />}
    </div>
  );
}
