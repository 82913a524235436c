/** Where people log in: with name and password, or with a token. Afterwards they are where they wanted to be. */

import { type FormEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { sayProblem } from "@/api/problems";
import mark from "@/mark.svg";
import { Button } from "@/parts/button";
import { TextField } from "@/parts/field";
import { Note } from "@/parts/states";
import { TabPanel, Tabs } from "@/parts/tabs";
import { useSessionDoor } from "@/session/session";
import "./login.css";

/** The page to log in. */
export function LoginPage() {
  return (
    <div className="login">
      <main className="card login-card">
        <LoginForm />
      </main>
    </div>
  );
}

/** The log-in over a page whose session has ended: it hides the page, and all that was typed there is kept. */
export function LoginDialog({ user }: { user: string }) {
  const box = useRef<HTMLDialogElement>(null);
  const open = () => {
    const dialog = box.current;
    if (!dialog || dialog.open) return;
    dialog.showModal?.();
    // Who they are is known: the rest is to be typed.
    dialog.querySelector<HTMLElement>("input[name=password]")?.focus();
  };
  useEffect(open, []);
  return (
    <dialog
      ref={box}
      className="login-over"
      aria-label="Log in again"
      onCancel={(event) => event.preventDefault()}
      // A browser closes it at the second Escape, whatever the page says.
      onClose={open}
    >
      <div className="login">
        <div className="card login-card">
          <LoginForm known={user}>
            <Note tone="warn">Your session has ended. Log in again to continue; your input is kept.</Note>
          </LoginForm>
        </div>
      </div>
    </dialog>
  );
}

/** `known`: who was logged in here. */
function LoginForm({ known = "", children }: { known?: string; children?: ReactNode }) {
  const { logIn } = useSessionDoor();
  const [way, setWay] = useState("password");
  const [user, setUser] = useState(known);
  const [password, setPassword] = useState("");
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await logIn(way === "password" ? { user: user.trim(), password } : { token: token.trim() });
    } catch (thrown) {
      setProblem(sayProblem(thrown));
      setBusy(false);
    }
  };
  return (
    <>
      <div className="login-mark">
        <img src={mark} alt="" />
        <h1>Legato</h1>
        <p className="soft">Elastic training on a shared pool</p>
      </div>
      {children}
      <Tabs
        label="Login method"
        tabs={[
          { name: "password", label: "Password" },
          { name: "token", label: "Token" },
        ]}
        chosen={way}
        onChoose={setWay}
      />
      <TabPanel chosen={way}>
        <form className="stack" onSubmit={submit}>
          {way === "password" ? (
            <>
              <TextField
                label="User name"
                name="user"
                autoComplete="username"
                autoCapitalize="none"
                spellCheck={false}
                required
                value={user}
                onValue={setUser}
              />
              <TextField
                label="Password"
                name="password"
                type="password"
                autoComplete="current-password"
                required
                value={password}
                onValue={setPassword}
              />
            </>
          ) : (
            <TextField
              label="Token"
              name="token"
              type="password"
              autoComplete="off"
              placeholder="lgt_…"
              hint="The server prints a token when it first starts. To create one: legato tokens add NAME"
              required
              value={token}
              onValue={setToken}
            />
          )}
          {problem && <Note tone="bad">{problem}</Note>}
          <Button type="submit" look="main" isBusy={isBusy}>
            Log in
          </Button>
        </form>
      </TabPanel>
    </>
  );
}
