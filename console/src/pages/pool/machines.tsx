/** The machines of a pool of several: GPU models, labels and state of each. Admins drain, resume and remove them. */

import { useState } from "react";
import { ask } from "@/api/client";
import type { components } from "@/api/schema";
import { useOutdate } from "@/pages/projects/project-data";
import { Button } from "@/parts/button";
import { Dialog } from "@/parts/dialog";
import { TextField } from "@/parts/field";
import { useSession } from "@/session/session";

export type NodeState = components["schemas"]["NodeState"];

/** Say whether a machine's slots are used, and why not. */
export function sayState({ agent, num_usable }: NodeState): string {
  if (agent === null) return num_usable ? "server" : "removed";
  if (agent.state === "drained") {
    return `drained by ${agent.drained_by ?? "an admin"}${agent.drain_reason ? `: ${agent.drain_reason}` : ""}`;
  }
  if (agent.state === "silent") return "does not answer";
  return agent.state === "left" ? "has left" : "ready";
}

/** Say what jobs can ask for: GPU models and labels. */
export function sayOffer({ gpu_types, labels }: NodeState): string {
  const models = Object.entries(gpu_types).map(([model, num]) => `${num} × ${model}`);
  return [...models, ...Object.entries(labels).map(([name, value]) => `${name}=${value}`)].join(" · ");
}

/** The list, one line per machine; nothing for a pool of one machine. */
export function Machines({ nodes }: { nodes: readonly NodeState[] }) {
  const isAdmin = useSession().role === "admin";
  const outdate = useOutdate();
  const [changed, setChanged] = useState<NodeState | null>(null);
  const [removed, setRemoved] = useState<NodeState | null>(null);
  const [reason, setReason] = useState("");
  if (nodes.every((node) => node.agent === null)) return null;
  const isDrained = changed?.agent?.state === "drained";
  const change = async (path: { node: string }) => {
    if (isDrained) await ask("post", "/nodes/{node}/resume", { path });
    else await ask("post", "/nodes/{node}/drain", { path, body: { reason } });
    await outdate("pool");
  };
  const remove = async (path: { node: string }) => {
    await ask("delete", "/nodes/{node}", { path });
    await outdate("pool");
  };
  return (
    <>
      <ul className="machines">
        {nodes.map((node) => (
          <li key={node.name}>
            <strong className="cut" title={node.name}>
              {node.name}
            </strong>
            <span>{sayState(node)}</span>
            <span className="quiet small">{sayOffer(node)}</span>
            {isAdmin && node.agent !== null && (
              <Button isSmall onClick={() => setChanged(node)}>
                {node.agent.state === "drained" ? "Resume" : "Drain"}
              </Button>
            )}
            {isAdmin && (node.agent?.state === "silent" || node.agent?.state === "left") && (
              <Button isSmall onClick={() => setRemoved(node)}>
                Remove
              </Button>
            )}
          </li>
        ))}
      </ul>
      {removed && (
        <Dialog
          title={`Remove ${removed.name}?`}
          action="Remove"
          onClose={() => setRemoved(null)}
          onDo={() => remove({ node: removed.name })}
          isBad
        >
          <p>The pool forgets the machine. To come back, it needs a join token.</p>
        </Dialog>
      )}
      {changed && (
        <Dialog
          title={isDrained ? `Use ${changed.name} again?` : `Drain ${changed.name}?`}
          action={isDrained ? "Resume" : "Drain"}
          onClose={() => setChanged(null)}
          onDo={() => change({ node: changed.name })}
        >
          {isDrained ? (
            <p>Jobs can use its slots again.</p>
          ) : (
            <>
              <p>Jobs shrink off the machine; none is stopped. It is not used until you resume it.</p>
              <TextField label="Reason" value={reason} onValue={setReason} maxLength={255} hint="All users see it." />
            </>
          )}
        </Dialog>
      )}
    </>
  );
}
