/** The window that makes a queue or changes one, with what that would mean for the jobs before it is saved. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ask } from "@/api/client";
import { sayProblem } from "@/api/problems";
import type { QueueState } from "@/api/types";
import { findUnknown, MembersField, useUserNames } from "@/pages/projects/members-field";
import { type FieldErrors, fieldErrorsOf, useOutdate } from "@/pages/projects/project-data";
import { EffectList } from "@/pages/submit/plan-view";
import { Dialog } from "@/parts/dialog";
import { CheckField, TextField } from "@/parts/field";
import { Note } from "@/parts/states";
import { bodyOfQueue, checkQueue, diffShares, type QueueDraft, type ShareChange, withQueue } from "./queue-draft";

interface DialogProps {
  queues: readonly QueueState[];
  draft: QueueDraft;
  /** Whether the queue is there already. */
  isOld: boolean;
  onDraft: (change: Partial<QueueDraft>) => void;
  onClose: () => void;
}

/** The dialog. */
export function QueueDialog({ queues, draft, isOld, onDraft, onClose }: DialogProps) {
  const outdate = useOutdate();
  const [said, setSaid] = useState<FieldErrors>({});
  const seen = checkQueue(draft, isOld ? [] : queues.map((queue) => queue.name));
  const wrong: FieldErrors = { ...seen, ...said };
  const isWrong = Object.keys(seen).length > 0;
  const unknown = findUnknown(bodyOfQueue(draft).members, useUserNames());
  const change = (values: Partial<QueueDraft>) => {
    setSaid({});
    onDraft(values);
  };
  const save = async () => {
    const { name, ...body } = bodyOfQueue(draft);
    try {
      await ask("put", "/queues/{queue}", { path: { queue: name }, body });
    } catch (thrown) {
      setSaid(fieldErrorsOf(thrown));
      throw thrown;
    }
    await outdate("queues", "pool");
  };
  return (
    <Dialog
      title={isOld ? `Edit queue ${draft.name}` : "New queue"}
      action="Save"
      isBlocked={isWrong || unknown !== null}
      onDo={save}
      onClose={onClose}
    >
      {!isOld && (
        <TextField
          label="Name"
          autoCapitalize="none"
          spellCheck={false}
          wrong={draft.name ? wrong.name : null}
          value={draft.name}
          onValue={(name) => change({ name })}
        />
      )}
      <div className="queue-numbers">
        <TextField
          label="Weight"
          inputMode="decimal"
          hint="Share relative to other queues"
          wrong={wrong.weight}
          value={draft.weight}
          onValue={(weight) => change({ weight })}
        />
        <TextField
          label="Floor"
          inputMode="numeric"
          hint="Guaranteed number of slots"
          wrong={wrong.floor}
          value={draft.floor}
          onValue={(floor) => change({ floor })}
        />
        <TextField
          label="Ceiling"
          inputMode="numeric"
          placeholder="pool size"
          hint="Maximum number of slots"
          wrong={wrong.ceiling}
          value={draft.ceiling}
          onValue={(ceiling) => change({ ceiling })}
        />
      </div>
      <CheckField label="Open to all users" isOn={draft.isOpen} onValue={(isOpen) => change({ isOpen })} />
      <MembersField
        hint={draft.isOpen ? "All users can submit to this queue." : "Only members can submit to this queue."}
        members={draft.members}
        onMembers={(members) => change({ members })}
        typed={draft.typed}
        onTyped={(typed) => change({ typed })}
        wrong={wrong.members}
      />
      {/* Half a name changes no slots. */}
      {!isWrong && <WhatIf queues={queues} draft={{ ...draft, typed: "" }} />}
    </Dialog>
  );
}

function WhatIf({ queues, draft }: { queues: readonly QueueState[]; draft: QueueDraft }) {
  const wanted = withQueue(queues, draft);
  const asked = useQuery({
    queryKey: ["pool", "queues-plan", wanted],
    queryFn: ({ signal }) => ask("post", "/queues/plan", { body: { queues: wanted }, signal }),
  });
  const now = useQuery({
    queryKey: ["pool", "shares-now"],
    queryFn: ({ signal }) => ask("get", "/pool/shares", { signal }),
  });
  if (asked.error) return <Note tone="warn">{sayProblem(asked.error)}</Note>;
  if (!asked.data) return null;
  const changes = diffShares(now.data?.items ?? [], asked.data.shares);
  return (
    <section className="what-if" aria-label="Effect on jobs" aria-live="polite">
      <h3>Effect on jobs</h3>
      {changes.length === 0 && asked.data.effects.length === 0 && (
        <p className="soft">No job gets more or fewer slots.</p>
      )}
      {changes.length > 0 && (
        <p className="soft">
          Fair shares:{" "}
          {changes.map((each, place) => (
            <span key={each.queue}>
              {place > 0 && ", "}
              <ShareText change={each} />
            </span>
          ))}
        </p>
      )}
      <EffectList effects={asked.data.effects} />
    </section>
  );
}

function ShareText({ change }: { change: ShareChange }) {
  return (
    <>
      {change.queue} <span className="number">{change.before ?? "–"}</span> <span aria-hidden="true">→</span>
      <span className="only-heard">to</span> <strong className="number">{change.after ?? "–"}</strong>
    </>
  );
}
