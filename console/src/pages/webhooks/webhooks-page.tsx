/** Webhooks: URLs that get a message when something happens to a job. Users see their own, administrators all. */

import { useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import { countOf } from "@/format/numbers";
import { useProjectNames } from "@/pages/job-list/project-names";
import { useOutdate } from "@/pages/projects/project-data";
import { Button } from "@/parts/button";
import { ConfirmDialog } from "@/parts/confirm";
import { Menu } from "@/parts/menu";
import { useNarrow } from "@/parts/narrow";
import { Ago } from "@/parts/now";
import { Answered, Empty, Note } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { useToasts } from "@/parts/toast";
import { useQueryValue } from "@/router/router";
import { maySubmit, useSession } from "@/session/session";
import { healthOf, sayConditions, type Webhook } from "./webhook-data";
import { DeliveriesDialog, WebhookDialog } from "./webhook-dialog";
import "@/pages/projects/projects.css";
import "./webhooks.css";

const ROW_HEIGHT = 58;
/** On a phone, the state stands below the URL. */
const NARROW_ROW_HEIGHT = 104;
type Asking = { what: "new" } | { what: "change" | "messages" | "remove"; webhook: Webhook };

const keyOf = (webhook: Webhook) => webhook.id;

function State({ webhook }: { webhook: Webhook }) {
  const { word, tone, told } = healthOf(webhook);
  return (
    <div className="grow">
      <span className={`badge tone-${tone}`}>{word}</span>{" "}
      {webhook.tried_at !== null && (
        <span className="quiet small">
          <Ago time={webhook.tried_at} />
        </span>
      )}
      {told && (
        <div className="small cut" title={told}>
          {told}
        </div>
      )}
    </div>
  );
}

/** The page. */
export default function WebhooksPage() {
  const session = useSession();
  const outdate = useOutdate();
  const toasts = useToasts();
  const projects = useProjectNames();
  const [project] = useQueryValue("project");
  const asked = useAsk(["webhooks"], "/webhooks", {}, { every_s: 10 });
  const [asking, setAsking] = useState<Asking | null>(null);
  const [tested, setTested] = useState<string | null>(null);
  const close = () => setAsking(null);
  const isNarrow = useNarrow();
  const isAdmin = session.role === "admin";
  const may = maySubmit(session);
  const sayWhose = (webhook: Webhook) =>
    webhook.project === null
      ? webhook.owner === session.name
        ? "My jobs"
        : `Jobs of ${webhook.owner}`
      : `Project ${projects.get(webhook.project) ?? webhook.project}`;

  const test = async (webhook: Webhook) => {
    setTested(webhook.id);
    try {
      const found = await ask("post", "/webhooks/{webhook}/test", { path: { webhook: webhook.id } });
      if (found.error === null) toasts.tell(`The test was accepted (status ${found.status}).`);
      else toasts.tellProblem(new Error(`The test was not accepted: ${found.error}.`));
    } catch (thrown) {
      toasts.tellProblem(thrown);
    }
    setTested(null);
    await outdate("webhooks");
  };

  const columns: Column<Webhook>[] = [
    {
      name: "url",
      title: "URL",
      width: 150,
      wants: 260,
      grows: 3,
      sortBy: (webhook) => webhook.url,
      show: (webhook) => (
        <div className="grow">
          <button
            type="button"
            className="cut webhook-link"
            title={webhook.url}
            onClick={() => setAsking({ what: "messages", webhook })}
          >
            {webhook.url.replace(/^https?:\/\//, "")}
          </button>
          <div className="quiet small cut">
            {isNarrow ? `${sayWhose(webhook)} · ${sayConditions(webhook)}` : sayConditions(webhook)}
          </div>
          {isNarrow && <State webhook={webhook} />}
        </div>
      ),
    },
    { name: "jobs", title: "Jobs", width: 130, grows: 1, leaves: 3, sortBy: sayWhose, show: sayWhose },
    ...(isAdmin
      ? [
          {
            name: "owner",
            title: "Owner",
            width: 90,
            leaves: 4,
            sortBy: (webhook: Webhook) => webhook.owner,
            show: (webhook: Webhook) => webhook.owner,
          },
        ]
      : []),
    {
      name: "state",
      title: "State",
      width: 130,
      wants: 260,
      grows: 3,
      sortBy: (webhook) => healthOf(webhook).word,
      show: (webhook) => <State webhook={webhook} />,
    },
    {
      name: "pending",
      title: "Pending",
      width: 80,
      isEnd: true,
      leaves: 2,
      sortBy: (webhook) => webhook.num_pending,
      show: (webhook) => <span className="number">{webhook.num_pending}</span>,
    },
    {
      name: "menu",
      title: <span className="only-heard">Actions</span>,
      width: 58,
      isEnd: true,
      show: (webhook) => (
        <Menu
          label={null}
          name={`Actions for ${webhook.url}`}
          icon="dots"
          look="plain"
          isSmall
          items={[
            { label: "Messages", icon: "info", onPick: () => setAsking({ what: "messages", webhook }) },
            {
              label: tested === webhook.id ? "Testing…" : "Send test",
              icon: "play",
              isOff: !may || tested !== null,
              onPick: () => void test(webhook),
            },
            { label: "Change…", icon: "edit", isOff: !may, onPick: () => setAsking({ what: "change", webhook }) },
            "line",
            {
              label: "Remove…",
              icon: "trash",
              isBad: true,
              isOff: !may,
              onPick: () => setAsking({ what: "remove", webhook }),
            },
          ]}
        />
      ),
    },
  ];
  return (
    <div className="page page-full">
      <div className="page-head">
        <h1>{isAdmin ? "Webhooks" : "My webhooks"}</h1>
        {may && (
          <Button icon="plus" look="main" onClick={() => setAsking({ what: "new" })}>
            Add webhook
          </Button>
        )}
      </div>
      <p className="soft">
        A webhook sends a message, for example to Slack, when a job ends, fails, shrinks or waits for long.
      </p>
      <Answered asked={asked} what="the webhooks">
        {({ items }) => {
          const shown = project ? items.filter((webhook) => webhook.project === project) : items;
          const bad = shown.filter((webhook) => healthOf(webhook).tone === "bad");
          return (
            <>
              {bad.length > 0 && (
                <Note tone="bad">
                  {countOf(bad.length, "receiver does", "receivers do")} not accept messages. Repair or change{" "}
                  {bad.length === 1 ? "it" : "them"}, and then send a test.
                </Note>
              )}
              <section className="card list-card" aria-label="Webhooks">
                <Table
                  label="Webhooks"
                  rows={shown}
                  columns={isNarrow ? columns.filter(({ name }) => name === "url" || name === "menu") : columns}
                  keyOf={keyOf}
                  rowHeight={isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT}
                  onOpen={(webhook) => setAsking({ what: "messages", webhook })}
                  empty={
                    <Empty icon="flag" title="No webhooks">
                      {may ? "Add one to get messages about your jobs." : "Viewers cannot add webhooks."}
                    </Empty>
                  }
                />
              </section>
            </>
          );
        }}
      </Answered>
      {asking?.what === "new" && <WebhookDialog webhook={null} project={project} onClose={close} />}
      {asking?.what === "change" && <WebhookDialog webhook={asking.webhook} onClose={close} />}
      {asking?.what === "messages" && <DeliveriesDialog webhook={asking.webhook} onClose={close} />}
      {asking?.what === "remove" && (
        <ConfirmDialog
          title="Remove this webhook?"
          action="Remove"
          onDo={async () => {
            await ask("delete", "/webhooks/{webhook}", { path: { webhook: asking.webhook.id } });
            await outdate("webhooks");
          }}
          onClose={close}
        >
          <span className="webhook-url">{asking.webhook.url}</span> gets no more messages.{" "}
          {asking.webhook.num_pending > 0 &&
            `${countOf(asking.webhook.num_pending, "pending message is", "pending messages are")} not sent.`}
        </ConfirmDialog>
      )}
    </div>
  );
}
