/** Dialogs of webhooks: add one, which shows its secret once; change one; look at its last messages. */

import { useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import { formatFullTime } from "@/format/time";
import { useProjectNames } from "@/pages/job-list/project-names";
import { SecretBox } from "@/pages/people/secret-box";
import { type FieldErrors, fieldErrorsOf, useOutdate } from "@/pages/projects/project-data";
import { Dialog } from "@/parts/dialog";
import { CheckField, SelectField, TextField } from "@/parts/field";
import { Ago } from "@/parts/now";
import { Answered, Empty } from "@/parts/states";
import { useToasts } from "@/parts/toast";
import { Link } from "@/router/router";
import { useSession } from "@/session/session";
import {
  type Delivery,
  type Draft,
  findChanges,
  healthOf,
  makeDraft,
  readDraft,
  UNITS,
  type Webhook,
} from "./webhook-data";

const DOCUMENT = "The server sends a JSON message to it, by POST, as Slack and Mattermost take it.";

interface WebhookDialogProps {
  /** Null: a new one. */
  webhook: Webhook | null;
  /** Of the jobs of a new one. */
  project?: string;
  onClose: () => void;
}

/** The dialog that adds or changes a webhook. */
export function WebhookDialog({ webhook, project, onClose }: WebhookDialogProps) {
  const session = useSession();
  const outdate = useOutdate();
  const toasts = useToasts();
  const projects = useProjectNames();
  const [draft, setDraft] = useState(() => makeDraft(webhook, project));
  const [wrong, setWrong] = useState<FieldErrors>({});
  const [secret, setSecret] = useState<string | null>(null);
  const body = readDraft(draft);
  const owner = webhook?.owner ?? session.name;
  const own = owner === session.name ? "My jobs" : `Jobs of ${owner}`;
  const choices = [
    { value: "", label: own },
    ...[...projects].map(([id, name]) => ({ value: id, label: `Jobs of project ${name}` })),
    ...(draft.project && !projects.has(draft.project) ? [{ value: draft.project, label: draft.project }] : []),
  ];
  const set = (change: Partial<Draft>) => {
    setWrong({});
    setDraft({ ...draft, ...change });
  };
  const changes = webhook && typeof body !== "string" ? findChanges(webhook, body) : null;
  const save = async () => {
    if (typeof body === "string") return;
    try {
      if (webhook) {
        await ask("patch", "/webhooks/{webhook}", { path: { webhook: webhook.id }, body: changes ?? {} });
        toasts.tell("Changed the webhook");
      } else setSecret((await ask("post", "/webhooks", { body })).secret);
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
    await outdate("webhooks");
    // A new one stays open: its secret is shown this once.
    if (!webhook) return new Promise<never>(() => {});
  };
  if (secret !== null) {
    return (
      <Dialog key="secret" title="Secret of the webhook" onClose={onClose}>
        <SecretBox secret={secret} what="secret" />
        <p className="soft">
          It signs the messages, so that a receiver can check that they are from this server. Slack needs no secret.
        </p>
      </Dialog>
    );
  }
  const isBare = !draft.onEnded && !draft.onFailed && !draft.below.trim() && !draft.waiting.trim();
  return (
    <Dialog
      key="fields"
      title={webhook ? "Change webhook" : "Add webhook"}
      action={webhook ? "Save" : "Add"}
      isBlocked={typeof body === "string" || (changes !== null && Object.keys(changes).length === 0)}
      typed={draft}
      onDo={save}
      onClose={onClose}
    >
      <TextField
        label="URL"
        type="url"
        data-autofocus=""
        placeholder="https://hooks.slack.com/services/…"
        hint={webhook ? "Its secret stays. Pending messages go to the new URL." : DOCUMENT}
        wrong={wrong.url}
        spellCheck={false}
        value={draft.url}
        onValue={(url) => set({ url })}
      />
      <SelectField
        label="Jobs"
        choices={choices}
        wrong={wrong.project}
        value={draft.project}
        onValue={(value) => set({ project: value })}
      />
      <fieldset className="webhook-conditions">
        <legend className="field-label">When</legend>
        <CheckField label="A job has ended" isOn={draft.onEnded} onValue={(onEnded) => set({ onEnded })} />
        <CheckField label="A job has failed" isOn={draft.onFailed} onValue={(onFailed) => set({ onFailed })} />
        <TextField
          label="A job shrinks below this number of workers"
          type="number"
          min={1}
          placeholder="never"
          wrong={wrong.below_workers ?? (/^([1-9]\d*)?$/.test(draft.below.trim()) ? null : "Enter a whole number.")}
          value={draft.below}
          onValue={(below) => set({ below })}
        />
        <div className="webhook-time">
          <TextField
            label="A job waits in its queue for longer than"
            type="number"
            min={0}
            step="any"
            placeholder="never"
            wrong={wrong.waiting_s}
            value={draft.waiting}
            onValue={(waiting) => set({ waiting })}
          />
          <SelectField label="Unit" choices={UNITS} value={draft.unit} onValue={(unit) => set({ unit })} />
        </div>
        {(isBare || wrong.on) && <div className="field-wrong">{wrong.on ?? "Choose at least one condition."}</div>}
      </fieldset>
    </Dialog>
  );
}

const STATES = {
  delivered: { word: "Accepted", tone: "good" },
  pending: { word: "Pending", tone: "warn" },
  failed: { word: "Given up", tone: "bad" },
} as const;

/** The dialog with the last messages of a webhook, and why they were not accepted. */
export function DeliveriesDialog({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const path = { webhook: webhook.id };
  const asked = useAsk(["webhooks", webhook.id], "/webhooks/{webhook}", { path }, { every_s: 5 });
  const told = healthOf(asked.data ?? webhook).told;
  return (
    <Dialog title="Messages" isWide onClose={onClose}>
      <p className="soft webhook-url">{webhook.url}</p>
      {told && <p>{told}</p>}
      <Answered asked={asked} what="the messages">
        {({ deliveries }) =>
          deliveries.length === 0 ? (
            <Empty title="No messages in the last 7 days">Send a test to see whether the receiver accepts it.</Empty>
          ) : (
            // biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse scrolls it by keys
            <div className="webhook-messages" tabIndex={0} role="group" aria-label="Messages">
              <table className="plain-table">
                <thead>
                  <tr>
                    <th scope="col">Time</th>
                    <th scope="col">Event</th>
                    <th scope="col">Job</th>
                    <th scope="col">State</th>
                    <th scope="col">Tries</th>
                    <th scope="col">Error</th>
                  </tr>
                </thead>
                <tbody>
                  {deliveries.map((one) => (
                    <DeliveryRow key={one.id} one={one} />
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Answered>
    </Dialog>
  );
}

function DeliveryRow({ one }: { one: Delivery }) {
  const { word, tone } = STATES[one.state as keyof typeof STATES] ?? { word: one.state, tone: "quiet" };
  // A test is sent once: nothing was given up.
  const isTest = one.event === "test" && one.state === "failed";
  return (
    <tr>
      <td>
        <Ago time={one.created_at} />
      </td>
      <td>{one.event}</td>
      <td>{one.job ? <Link to={`/jobs/${one.job}`}>{one.job}</Link> : <span className="quiet">–</span>}</td>
      <td>
        <span className={`badge tone-${tone}`}>{isTest ? "Not accepted" : word}</span>
      </td>
      <td className="number">{one.num_tries}</td>
      <td>
        {one.error ?? <span className="quiet">–</span>}
        {one.next_at !== null && (
          <span className="quiet small" title={formatFullTime(one.next_at)}>
            {" "}
            Next try <Ago time={one.next_at} />.
          </span>
        )}
      </td>
    </tr>
  );
}
