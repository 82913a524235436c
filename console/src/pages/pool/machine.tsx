/** A machine of a pool of several: its GPU models, labels and state. Admins drain, resume and remove it. */

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

/** What a machine offers and how it stands; admins drain, resume and remove it. `isNamed`: its name is shown too. */
export function Machine({ node, isNamed = false }: { node: NodeState; isNamed?: boolean }) {
  const isAdmin = useSession().role === "admin";
  const outdate = useOutdate();
  const [isChanged, setIsChanged] = useState(false);
  const [isRemoved, setIsRemoved] = useState(false);
  const [reason, setReason] = useState("");
  const isDrained = node.agent?.state === "drained";
  const path = { node: node.name };
  const change = async () => {
    if (isDrained) await ask("post", "/nodes/{node}/resume", { path });
    else await ask("post", "/nodes/{node}/drain", { path, body: { reason } });
    await outdate("pool");
  };
  const remove = async () => {
    await ask("delete", "/nodes/{node}", { path });
    await outdate("pool");
  };
  return (
    <>
      <div className="machine">
        {isNamed && (
          <strong className="cut" title={node.name}>
            {node.name}
          </strong>
        )}
        <span>{sayState(node)}</span>
        <span className="quiet small">{sayOffer(node)}</span>
        {isAdmin && node.agent !== null && (
          <Button
            isSmall
            aria-label={`${isDrained ? "Resume" : "Drain"} ${node.name}`}
            onClick={() => setIsChanged(true)}
          >
            {isDrained ? "Resume" : "Drain"}
          </Button>
        )}
        {isAdmin && (node.agent?.state === "silent" || node.agent?.state === "left") && (
          <Button isSmall aria-label={`Remove ${node.name}`} onClick={() => setIsRemoved(true)}>
            Remove
          </Button>
        )}
      </div>
      {isRemoved && (
        <Dialog title={`Remove ${node.name}?`} action="Remove" onClose={() => setIsRemoved(false)} onDo={remove} isBad>
          <p>The pool forgets the machine. To come back, it needs a join token.</p>
        </Dialog>
      )}
      {isChanged && (
        <Dialog
          title={isDrained ? `Use ${node.name} again?` : `Drain ${node.name}?`}
          action={isDrained ? "Resume" : "Drain"}
          onClose={() => setIsChanged(false)}
          onDo={change}
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
