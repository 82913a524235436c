/** Where people log in: with name and password, or with a token. Afterwards they are where they wanted to be. */

import { type FormEvent, useState } from "react";
import { sayProblem } from "@/api/problems";
import mark from "@/mark.svg";
import { Button } from "@/parts/button";
import { TextField } from "@/parts/field";
import { Note } from "@/parts/states";
import { TabPanel, Tabs } from "@/parts/tabs";
import { useSessionDoor } from "@/session/session";
import "./login.css";

/** The page to log in. `wasIn`: the session ended while the page was open. */
export function LoginPage({ wasIn }: { wasIn: boolean }) {
  const { logIn } = useSessionDoor();
  const [way, setWay] = useState("password");
  const [user, setUser] = useState("");
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
    <div className="login">
      <main className="card login-card">
        <div className="login-mark">
          <img src={mark} alt="" />
          <h1>Legato</h1>
          <p className="soft">Many jobs share one pool</p>
        </div>
        {wasIn && <Note tone="warn">Your session is over. Log in again to go on where you were.</Note>}
        <Tabs
          label="How to log in"
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
                hint="The server says one at its first start, and legato tokens create makes more."
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
      </main>
    </div>
  );
}
