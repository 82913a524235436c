/** Users: who there is, with which role; administrators make, change and disable them. */

import { useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import type { components } from "@/api/schema";
import type { Role } from "@/api/types";
import { type FieldErrors, fieldErrorsOf, useOutdate } from "@/pages/projects/project-data";
import { Button } from "@/parts/button";
import { Dialog } from "@/parts/dialog";
import { CheckField, SelectField, TextField } from "@/parts/field";
import { Ago } from "@/parts/now";
import { Answered, NoPermission, Note } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { useToasts } from "@/parts/toast";
import { go, Link } from "@/router/router";
import { useSession } from "@/session/session";
import { PasswordDialog } from "./password-dialog";
import "@/pages/projects/projects.css";

type User = components["schemas"]["User"];
type Shown = { what: "new" } | { what: "password" | "change"; user: User };

export const ROLES: readonly { value: Role; label: string }[] = [
  { value: "user", label: "User: submits and changes own jobs" },
  { value: "viewer", label: "Viewer: read-only access" },
  { value: "admin", label: "Administrator: full access" },
];

const COLUMNS: Column<User>[] = [
  {
    name: "name",
    title: "User",
    width: 100,
    grows: 2,
    sortBy: (user) => user.name,
    show: (user) => (
      <Link to="/jobs" query={{ owner: user.name }} title={`Jobs of ${user.name}`}>
        {user.name}
      </Link>
    ),
  },
  { name: "role", title: "Role", width: 90, leaves: 1, sortBy: (user) => user.role, show: (user) => user.role },
  {
    name: "state",
    title: "State",
    width: 100,
    sortBy: (user) => user.disabled_at,
    show: (user) =>
      user.disabled_at === null ? (
        <span className="badge tone-good">Active</span>
      ) : (
        <span className="badge tone-quiet">Disabled</span>
      ),
  },
  {
    name: "password",
    title: "Login",
    width: 150,
    grows: 1,
    leaves: 2,
    show: (user) => <span className="soft">{user.has_password ? "password or token" : "token only"}</span>,
  },
  {
    name: "created",
    title: "Created",
    width: 100,
    leaves: 3,
    sortBy: (user) => user.created_at,
    show: (user) => (
      <span className="quiet">
        <Ago time={user.created_at} />
      </span>
    ),
  },
];
const keyOf = (user: User) => user.name;

/** The page. */
export default function UsersPage() {
  const session = useSession();
  const isAdmin = session.role === "admin";
  const asked = useAsk(["people"], "/users", {}, { isOn: session.role !== "user" });
  const [shown, setShown] = useState<Shown | null>(null);
  if (session.role === "user") {
    return (
      <div className="page">
        <div className="page-head">
          <h1>Users</h1>
        </div>
        <NoPermission>
          Only administrators and viewers can see the list of users. Your own tokens are in the user menu.
        </NoPermission>
      </div>
    );
  }
  const columns: Column<User>[] = isAdmin
    ? [
        ...COLUMNS,
        {
          name: "do",
          title: <span className="only-heard">Actions</span>,
          width: 120,
          isEnd: true,
          show: (user) => (
            <span className="row row-end">
              <Button
                icon="edit"
                look="plain"
                isSmall
                aria-label={`Edit ${user.name}`}
                onClick={() => setShown({ what: "change", user })}
              />
              <Button
                icon="lock"
                look="plain"
                isSmall
                aria-label={`Set the password of ${user.name}`}
                onClick={() => setShown({ what: "password", user })}
              />
              <Button
                icon="key"
                look="plain"
                isSmall
                aria-label={`Tokens of ${user.name}`}
                onClick={() => go("/tokens", { user: user.name })}
              />
            </span>
          ),
        },
      ]
    : COLUMNS;
  return (
    <div className="page page-full">
      <div className="page-head">
        <h1>Users</h1>
        {isAdmin && (
          <Button icon="plus" onClick={() => setShown({ what: "new" })}>
            New user
          </Button>
        )}
      </div>
      <Answered asked={asked} what="the users">
        {(answer) => (
          <section className="card list-card" aria-label="Users">
            <Table label="Users" rows={answer.items} columns={columns} keyOf={keyOf} />
          </section>
        )}
      </Answered>
      {shown?.what === "new" && <NewUserDialog onClose={() => setShown(null)} />}
      {shown?.what === "password" && <PasswordDialog user={shown.user.name} onClose={() => setShown(null)} />}
      {shown?.what === "change" && <ChangeDialog user={shown.user} onClose={() => setShown(null)} />}
    </div>
  );
}

function ChangeDialog({ user, onClose }: { user: User; onClose: () => void }) {
  const outdate = useOutdate();
  const toasts = useToasts();
  const [role, setRole] = useState<Role>(user.role);
  const [isDisabled, setDisabled] = useState(user.disabled_at !== null);
  const [wrong, setWrong] = useState<FieldErrors>({});
  const save = async () => {
    try {
      await ask("patch", "/users/{user}", { path: { user: user.name }, body: { role, is_disabled: isDisabled } });
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
    await outdate("people");
    toasts.tell(`${user.name} is now ${isDisabled ? "disabled" : role}.`);
  };
  return (
    <Dialog title={`Edit ${user.name}`} action="Save" isBad={isDisabled} onDo={save} onClose={onClose}>
      <SelectField
        label="Role"
        choices={ROLES}
        wrong={wrong.role}
        value={role}
        onValue={(value) => setRole(value as Role)}
      />
      <CheckField label="Disabled" isOn={isDisabled} onValue={setDisabled} />
      {isDisabled && user.disabled_at === null && (
        <Note tone="warn">
          All tokens and sessions of {user.name} stop working at once. Jobs keep running; you can stop them on the Jobs
          page.
        </Note>
      )}
    </Dialog>
  );
}

function NewUserDialog({ onClose }: { onClose: () => void }) {
  const outdate = useOutdate();
  const toasts = useToasts();
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("user");
  const [password, setPassword] = useState("");
  const [wrong, setWrong] = useState<FieldErrors>({});
  const save = async () => {
    try {
      await ask("post", "/users", { body: { name: name.trim(), role, password: password || null } });
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
    await outdate("people");
    toasts.tell(`User ${name.trim()} created.`);
  };
  return (
    <Dialog title="New user" action="Create" isBlocked={!name.trim()} onDo={save} onClose={onClose}>
      <TextField
        label="Name"
        autoCapitalize="none"
        autoComplete="off"
        spellCheck={false}
        required
        wrong={wrong.name}
        value={name}
        onValue={setName}
      />
      <SelectField
        label="Role"
        choices={ROLES}
        wrong={wrong.role}
        value={role}
        onValue={(value) => setRole(value as Role)}
      />
      <TextField
        label="Password"
        type="password"
        autoComplete="new-password"
        hint="Optional. A user without a password logs in with a token."
        wrong={wrong.password}
        value={password}
        onValue={setPassword}
      />
    </Dialog>
  );
}
