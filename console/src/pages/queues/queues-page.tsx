/** The queues: whose part of the pool is how large, who may submit where. Administrators change them here. */

import { useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import type { QueueState } from "@/api/types";
import { formatValue } from "@/format/numbers";
import { useOutdate } from "@/pages/projects/project-data";
import { Button } from "@/parts/button";
import { ConfirmDialog } from "@/parts/confirm";
import { Icon } from "@/parts/icon";
import { Answered, Empty } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { Link } from "@/router/router";
import { useSession } from "@/session/session";
import { QueueDialog } from "./queue-dialog";
import { draftOfQueue, NEW_QUEUE, type QueueDraft } from "./queue-draft";
import "@/pages/projects/projects.css";
import "./queues.css";

type Share = { fair: number | null; borrowed: number | null };

function makeColumns(shares: ReadonlyMap<string, Share>): Column<QueueState>[] {
  return [
    {
      name: "name",
      title: "Queue",
      width: 120,
      grows: 2,
      sortBy: (queue) => queue.name,
      show: (queue) => (
        <Link to="/jobs" query={{ queue: queue.name }} title={`Jobs of ${queue.name}`}>
          {queue.name}
        </Link>
      ),
    },
    {
      name: "weight",
      title: "Weight",
      width: 74,
      isEnd: true,
      sortBy: (queue) => queue.weight,
      show: (queue) => formatValue(queue.weight, 3),
    },
    {
      name: "floor",
      title: "Floor",
      width: 64,
      isEnd: true,
      leaves: 5,
      sortBy: (queue) => queue.floor,
      show: (queue) => queue.floor,
    },
    {
      name: "ceiling",
      title: "Ceiling",
      width: 76,
      isEnd: true,
      leaves: 4,
      sortBy: (queue) => queue.ceiling,
      show: (queue) => queue.ceiling ?? <span className="quiet">pool</span>,
    },
    {
      name: "fair",
      title: "Fair share",
      width: 88,
      isEnd: true,
      leaves: 6,
      sortBy: (queue) => shares.get(queue.name)?.fair ?? null,
      show: (queue) => formatValue(shares.get(queue.name)?.fair, 3),
    },
    {
      name: "held",
      title: "In use",
      width: 66,
      isEnd: true,
      sortBy: (queue) => queue.num_slots,
      show: (queue) => queue.num_slots,
    },
    {
      name: "borrowed",
      title: "Borrowed",
      width: 86,
      isEnd: true,
      leaves: 7,
      sortBy: (queue) => shares.get(queue.name)?.borrowed ?? null,
      show: (queue) => formatValue(shares.get(queue.name)?.borrowed, 3),
    },
    {
      name: "jobs",
      title: "Running",
      width: 66,
      isEnd: true,
      leaves: 3,
      sortBy: (queue) => queue.num_holding,
      show: (queue) => queue.num_holding,
    },
    {
      name: "queued",
      title: "Queued",
      width: 78,
      isEnd: true,
      leaves: 2,
      sortBy: (queue) => queue.num_queued,
      show: (queue) => queue.num_queued,
    },
    {
      name: "members",
      title: "Members",
      width: 140,
      grows: 3,
      leaves: 1,
      show: (queue) =>
        queue.is_open ? (
          <span className="quiet">all users</span>
        ) : queue.members.length ? (
          <span className="row" title={queue.members.join(", ")}>
            <Icon name="lock" size={12} />
            <span className="cut">{queue.members.join(", ")}</span>
          </span>
        ) : (
          <span className="quiet">administrators only</span>
        ),
    },
  ];
}

const keyOf = (queue: QueueState) => queue.name;

/** The page. */
export default function QueuesPage() {
  const session = useSession();
  const queues = useAsk(["queues"], "/queues", {}, { every_s: 15 });
  const shares = useAsk(["pool"], "/pool/shares", {}, { every_s: 15 });
  const outdate = useOutdate();
  const [draft, setDraft] = useState<{ draft: QueueDraft; isOld: boolean } | null>(null);
  const [removed, setRemoved] = useState<QueueState | null>(null);
  const isAdmin = session.role === "admin";
  const byName = new Map((shares.data?.items ?? []).map((share) => [share.queue, share]));
  const columns = makeColumns(byName);
  if (isAdmin) {
    columns.push({
      name: "do",
      title: <span className="only-heard">Actions</span>,
      width: 84,
      isEnd: true,
      show: (queue) => (
        <span className="row row-end">
          <Button
            icon="edit"
            look="plain"
            isSmall
            aria-label={`Edit queue ${queue.name}`}
            onClick={() => setDraft({ draft: draftOfQueue(queue), isOld: true })}
          />
          <Button
            icon="trash"
            look="plain"
            isSmall
            aria-label={`Delete queue ${queue.name}`}
            onClick={() => setRemoved(queue)}
          />
        </span>
      ),
    });
  }
  return (
    <div className="page page-full">
      <div className="page-head">
        <h1>Queues</h1>
        {isAdmin && (
          <Button icon="plus" onClick={() => setDraft({ draft: NEW_QUEUE, isOld: false })}>
            New queue
          </Button>
        )}
      </div>
      {!isAdmin && (
        <p className="soft">
          {session.role === "user" && "You can submit to these queues. "}Only administrators can change them.
        </p>
      )}
      <Answered asked={queues} what="the queues">
        {(answer) => (
          <section className="card list-card" aria-label="Queues">
            <Table
              label="Queues"
              rows={answer.items}
              columns={columns}
              keyOf={keyOf}
              empty={<Empty title="No queues">You are not a member of a queue. Ask an administrator to add you.</Empty>}
            />
            {draft && (
              <QueueDialog
                queues={answer.items}
                draft={draft.draft}
                isOld={draft.isOld}
                onDraft={(change) =>
                  setDraft((before) => before && { ...before, draft: { ...before.draft, ...change } })
                }
                onClose={() => setDraft(null)}
              />
            )}
          </section>
        )}
      </Answered>
      {removed && (
        <ConfirmDialog
          title={`Delete queue ${removed.name}?`}
          action="Delete queue"
          onDo={async () => {
            await ask("delete", "/queues/{queue}", { path: { queue: removed.name } });
            await outdate("queues", "pool");
          }}
          onClose={() => setRemoved(null)}
        >
          You can delete a queue only if no job and no project uses it.
        </ConfirmDialog>
      )}
    </div>
  );
}
