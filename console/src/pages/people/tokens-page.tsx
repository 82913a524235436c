/** Tokens: users see their own, administrators those of all users. A new one is shown once. */

import { useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import type { components } from "@/api/schema";
import type { Role } from "@/api/types";
import { formatAgo, formatFullTime } from "@/format/time";
import { type FieldErrors, fieldErrorsOf, useFrameworks, useOutdate } from "@/pages/projects/project-data";
import { Button } from "@/parts/button";
import { ConfirmDialog } from "@/parts/confirm";
import { Dialog } from "@/parts/dialog";
import { CheckField, SelectField, TextField } from "@/parts/field";
import { Ago, useNow } from "@/parts/now";
import { Segments } from "@/parts/segments";
import { Answered, Empty } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { useQueryValue } from "@/router/router";
import { useSession } from "@/session/session";
import { PasswordDialog } from "./password-dialog";
import { SecretBox } from "./secret-box";
import { ROLES } from "./users-page";
import "@/pages/projects/projects.css";
import "./people.css";

type Token = components["schemas"]["Token"];
const ALL = "all";
const DAY_S = 86_400;
const SOON_S = 14 * DAY_S;
const SESSION = "session";
const LIVES = [
  { value: SESSION, label: "When this session ends" },
  { value: "7", label: "In 7 days" },
  { value: "30", label: "In 30 days" },
  { value: "90", label: "In 90 days" },
  { value: "365", label: "In a year" },
];
const RANK: readonly Role[] = ["viewer", "user", "admin"];

/** Return how a token stands. */
export function standOf(token: Token, now: number): "valid" | "revoked" | "expired" {
  if (token.revoked_at !== null) return "revoked";
  return token.expires_at !== null && token.expires_at <= now ? "expired" : "valid";
}

const STANDS = {
  valid: { word: "Valid", tone: "good" },
  revoked: { word: "Revoked", tone: "quiet" },
  expired: { word: "Expired", tone: "quiet" },
} as const;

function Stand({ token }: { token: Token }) {
  const { word, tone } = STANDS[standOf(token, useNow())];
  return <span className={`badge tone-${tone}`}>{word}</span>;
}

function Ends({ token }: { token: Token }) {
  const now = useNow();
  if (token.expires_at === null) return <span className="soft">unknown</span>;
  const isSoon = token.kind === "token" && standOf(token, now) === "valid" && token.expires_at - now < SOON_S;
  return (
    <span className={isSoon ? "tone-warn" : undefined} title={formatFullTime(token.expires_at)}>
      {formatAgo(token.expires_at, now)}
    </span>
  );
}

const COLUMNS: Column<Token>[] = [
  { name: "name", title: "Token", width: 130, grows: 2, sortBy: (token) => token.name, show: (token) => token.name },
  {
    name: "user",
    title: "User",
    width: 90,
    grows: 1,
    leaves: 4,
    sortBy: (token) => token.user,
    show: (token) => token.user,
  },
  { name: "role", title: "Role", width: 76, leaves: 3, sortBy: (token) => token.role, show: (token) => token.role },
  { name: "stand", title: "State", width: 90, show: (token) => <Stand token={token} /> },
  {
    name: "used",
    title: "Last used",
    width: 104,
    leaves: 2,
    sortBy: (token) => token.used_at,
    show: (token) => (token.used_at === null ? <span className="quiet">never</span> : <Ago time={token.used_at} />),
  },
  {
    name: "expires",
    title: "Expires",
    width: 104,
    leaves: 1,
    sortBy: (token) => token.expires_at,
    show: (token) => <Ends token={token} />,
  },
  {
    name: "created",
    title: "Created",
    width: 104,
    leaves: 5,
    sortBy: (token) => token.created_at,
    show: (token) => <Ago time={token.created_at} />,
  },
];
const keyOf = (token: Token) => token.id;

/** Where to get the command of IBM WMLA, if this server understands it. */
function WmlaCommand() {
  const frameworks = useFrameworks();
  const session = useSession();
  const { hostname, port } = window.location;
  if (!frameworks.data?.items.some((one) => one.name === "edtPyTorch")) return null;
  return (
    <p className="soft">
      For IBM WMLA's command line, download{" "}
      <a href="/ui/tools/dlicmd.py" download>
        dlicmd.py
      </a>{" "}
      and log on with{" "}
      <code>{`python3 dlicmd.py --logon --rest-host ${hostname}${port && ` --rest-port ${port}`} --username ${session.name}`}</code>
      .
    </p>
  );
}

/** The page. */
export default function TokensPage() {
  const session = useSession();
  const [whose, setWhose] = useQueryValue("user", session.name);
  const [showsOld, setShowsOld] = useQueryValue("old");
  const isAdmin = session.role === "admin";
  const user = isAdmin ? whose : session.name;
  const query = isAdmin && user !== ALL ? { user } : {};
  const asked = useAsk(["people", "tokens"], "/tokens", { query }, { keepsLast: true });
  const outdate = useOutdate();
  const now = useNow();
  const [shown, setShown] = useState<"new" | "password" | null>(null);
  const [revoked, setRevoked] = useState<Token | null>(null);
  const columns: Column<Token>[] = [
    ...COLUMNS,
    {
      name: "do",
      title: <span className="only-heard">Revoke</span>,
      width: 92,
      isEnd: true,
      show: (token) =>
        standOf(token, now) === "valid" && (
          <Button look="plain" isSmall isBad onClick={() => setRevoked(token)} aria-label={`Revoke ${token.name}`}>
            Revoke
          </Button>
        ),
    },
  ];
  const whoseChoices = [
    { value: session.name, label: "Mine" },
    ...(user !== session.name && user !== ALL ? [{ value: user, label: user }] : []),
    { value: ALL, label: "All users" },
  ];
  return (
    <div className="page page-full">
      <div className="page-head">
        <h1>{isAdmin ? "Tokens" : "My tokens"}</h1>
        {isAdmin && <Segments label="Owner" choices={whoseChoices} chosen={user} onChoose={setWhose} />}
        <CheckField
          label="Show expired and revoked"
          isOn={showsOld !== ""}
          onValue={(isOn) => setShowsOld(isOn ? "yes" : null)}
        />
        <Button icon="lock" onClick={() => setShown("password")}>
          Set password
        </Button>
        <Button icon="plus" look="main" onClick={() => setShown("new")}>
          New token
        </Button>
      </div>
      <p className="soft">
        A token lets a program act as you, with <code>Authorization: Bearer</code> or <code>legato login</code>. Console
        sessions are listed too.
      </p>
      <WmlaCommand />
      <Answered asked={asked} what="the tokens">
        {(answer) => (
          <section className="card list-card" aria-label="Tokens">
            <Table
              label="Tokens"
              rows={answer.items.filter((token) => showsOld || standOf(token, now) === "valid")}
              columns={columns}
              keyOf={keyOf}
              empty={
                <Empty icon="lock" title="No tokens">
                  Create one for a program that acts as you.
                </Empty>
              }
            />
          </section>
        )}
      </Answered>
      {shown === "new" && <NewTokenDialog user={user === ALL ? session.name : user} onClose={() => setShown(null)} />}
      {shown === "password" && <PasswordDialog user={session.name} onClose={() => setShown(null)} />}
      {revoked && (
        <ConfirmDialog
          title={`Revoke ${revoked.name}?`}
          action="Revoke"
          onDo={async () => {
            await ask("delete", "/tokens/{token}", { path: { token: revoked.id } });
            await outdate("people");
          }}
          onClose={() => setRevoked(null)}
        >
          Programs that use it will be refused. You cannot undo this.
          {revoked.name === "console" && " It is a console session, so its user must log in again."}
        </ConfirmDialog>
      )}
    </div>
  );
}

export function NewTokenDialog({ user, onClose }: { user: string; onClose: () => void }) {
  const session = useSession();
  const outdate = useOutdate();
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>(session.role);
  const [life, setLife] = useState("90");
  const [password, setPassword] = useState("");
  const now = useNow();
  const [wrong, setWrong] = useState<FieldErrors>({});
  const [secret, setSecret] = useState<string | null>(null);
  const isForOther = user !== session.name;
  const isOfSession = life === SESSION;
  const save = async () => {
    try {
      const made = await ask("post", "/tokens", {
        body: {
          name: name.trim(),
          ...(isForOther ? { user } : { role }),
          ...(isOfSession
            ? { days: ((session.expires_at ?? now) - now - 1) / DAY_S }
            : { days: Number(life), password }),
        },
      });
      setSecret(made.secret);
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
    await outdate("people");
    // It stays open: what was made is shown this once.
    return new Promise<never>(() => {});
  };
  if (secret !== null) {
    return (
      <Dialog key="secret" title={`Token ${name.trim()}`} onClose={onClose}>
        <SecretBox secret={secret} />
      </Dialog>
    );
  }
  return (
    <Dialog
      key="new"
      title={isForOther ? `New token for ${user}` : "New token"}
      action="Create"
      isBlocked={!name.trim() || !(isOfSession || password)}
      onDo={save}
      onClose={onClose}
    >
      <TextField
        label="Name"
        placeholder="notebook"
        hint="Identifies the token in the list."
        wrong={wrong.name}
        value={name}
        onValue={setName}
      />
      {!isForOther && (
        <SelectField
          label="Role"
          choices={ROLES.filter(({ value }) => RANK.indexOf(value) <= RANK.indexOf(session.role))}
          wrong={wrong.role}
          value={role}
          onValue={(value) => setRole(value as Role)}
        />
      )}
      <SelectField label="Expires" choices={LIVES} wrong={wrong.days} value={life} onValue={setLife} />
      {!isOfSession && (
        <TextField
          label="Your password"
          type="password"
          autoComplete="current-password"
          hint="Required for a token that expires after this session."
          wrong={wrong.password}
          value={password}
          onValue={(value) => {
            setWrong({});
            setPassword(value);
          }}
        />
      )}
    </Dialog>
  );
}
