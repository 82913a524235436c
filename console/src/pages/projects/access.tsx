/** Requests for access to training definitions: the card of their owner, and the list of whom one can ask. */

import { useState } from "react";
import { ask } from "@/api/client";
import { Button } from "@/parts/button";
import { Card } from "@/parts/card";
import { SelectField } from "@/parts/field";
import { Ago, useNow } from "@/parts/now";
import { Note } from "@/parts/states";
import { useToasts } from "@/parts/toast";
import { useSession } from "@/session/session";
import {
  type AccessRequest,
  type Project,
  useAccessRequests,
  useOutdate,
  useProjectOwners,
  useProjects,
} from "./project-data";

const DAY_S = 24 * 3600;

/** The open requests that the user has received. Nothing if there is none. */
export function AccessCard() {
  const session = useSession();
  const requests = useAccessRequests();
  const projects = useProjects();
  const open = requests.data?.items.filter((one) => one.stage === "open" && one.owner === session.name) ?? [];
  const own = projects.data?.items.filter((one) => one.owner === session.name) ?? [];
  if (open.length === 0) return null;
  return (
    <Card title="Requests for access" isFlush>
      <ul className="definitions">
        {open.map((request) => (
          <ReceivedRequest key={request.id} request={request} projects={own} />
        ))}
      </ul>
    </Card>
  );
}

function ReceivedRequest({ request, projects }: { request: AccessRequest; projects: readonly Project[] }) {
  const [chosen, setChosen] = useState("");
  const [isBusy, setBusy] = useState(false);
  const toasts = useToasts();
  const outdate = useOutdate();
  const project = projects.find((one) => one.id === chosen) ?? projects[0];
  const decide = async (does: () => Promise<unknown>, done: string) => {
    setBusy(true);
    await toasts.attempt(does, done);
    await outdate("projects");
    setBusy(false);
  };
  const path = { request: request.id };
  return (
    <li className="access">
      <div className="grow">
        <strong>{request.user}</strong> asks for access to your training definitions{" "}
        <span className="quiet">
          <Ago time={request.created_at} />
        </span>
        {request.message && <div className="soft">{request.message}</div>}
      </div>
      <SelectField
        label="Project"
        choices={projects.map((one) => ({ value: one.id, label: one.name }))}
        value={project?.id ?? ""}
        onValue={setChosen}
      />
      <Button
        look="main"
        disabled={isBusy || !project}
        onClick={() =>
          project &&
          void decide(
            () => ask("post", "/access-requests/{request}/grant", { path, body: { project: project.id } }),
            `${request.user} is now a member of ${project.name}.`,
          )
        }
      >
        Add to project
      </Button>
      <Button
        disabled={isBusy}
        onClick={() =>
          void decide(
            () => ask("post", "/access-requests/{request}/decline", { path }),
            `The request of ${request.user} is declined.`,
          )
        }
      >
        Decline
      </Button>
    </li>
  );
}

/** Whose definitions the user cannot see, each with a button that asks for access. Nothing if there are none. */
export function OwnersToAsk() {
  const session = useSession();
  const owners = useProjectOwners();
  const requests = useAccessRequests();
  const toasts = useToasts();
  const outdate = useOutdate();
  const sent = new Map(
    (requests.data?.items ?? []).filter((one) => one.user === session.name).map((one) => [one.owner, one]),
  );
  if (!owners.data?.items.length) return null;
  return (
    <section aria-label="Definitions of other users">
      <p className="small soft">
        You see the definitions of projects that you are a member of. These users have others; ask for access:
      </p>
      <ul className="definitions">
        {owners.data.items.map(({ name }) => {
          const request = sent.get(name);
          return (
            <li key={name} className="access">
              <strong className="grow">{name}</strong>
              {request?.stage === "declined" && <span className="quiet">declined</span>}
              {request?.stage === "open" ? (
                <span className="quiet">
                  asked <Ago time={request.created_at} />
                </span>
              ) : (
                <Button
                  isSmall
                  onClick={async () => {
                    const body = { owner: name, message: "" };
                    await toasts.attempt(() => ask("post", "/access-requests", { body }), `${name} was asked.`);
                    await outdate("projects");
                  }}
                >
                  Ask {name} for access
                </Button>
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

interface GrantedProps {
  /** The project whose definitions are shown. */
  shown: string;
  onShow: (project: string) => void;
}

/** Projects to which the user got access within a day, by a request. Nothing for the project that is shown. */
export function GrantedAccess({ shown, onShow }: GrantedProps) {
  const session = useSession();
  const requests = useAccessRequests();
  const projects = useProjects();
  const now = useNow(60);
  const granted = (requests.data?.items ?? []).filter(
    (one) => one.user === session.name && one.project !== shown && now - (one.decided_at ?? 0) < DAY_S,
  );
  return granted.map(({ id, owner, project }) => {
    const found = projects.data?.items.find((one) => one.id === project);
    return (
      found && (
        <Note key={id} tone="good">
          <div className="granted">
            <span className="grow">
              <strong>{owner}</strong> gave you access to the project {found.name}.
            </span>
            <Button isSmall onClick={() => onShow(found.id)}>
              Show its definitions
            </Button>
          </div>
        </Note>
      )
    );
  });
}
