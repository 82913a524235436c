/** Where the link of the first start leads: its code is good once, and logs in at the press of a button. */

import { useState } from "react";
import { sayProblem } from "@/api/problems";
import mark from "@/mark.svg";
import { Button } from "@/parts/button";
import { Note } from "@/parts/states";
import { go, Link } from "@/router/router";
import { useSessionDoor } from "@/session/session";
import "./login.css";

/** The page of a link with a code. It waits for the button: whoever looks ahead at a link does not use it up. */
export function WelcomePage({ code }: { code: string }) {
  const { logIn } = useSessionDoor();
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const enter = async () => {
    setBusy(true);
    try {
      await logIn({ code });
      go("/runs", {}, true);
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
          <h1>Welcome to Legato</h1>
          <p className="soft">This link logs you in once. It is good for an hour.</p>
        </div>
        {problem && <Note tone="bad">{problem}</Note>}
        {!code && <Note tone="bad">The link has no code. Copy all of it, to its end.</Note>}
        <Button look="main" isBusy={isBusy} disabled={!code} onClick={() => void enter()}>
          Log in
        </Button>
        <p className="login-other">
          <Link to="/">Log in with a password or a token</Link>
        </p>
      </main>
    </div>
  );
}
