/** Where the link of the first start leads: its code is good once, and logs in at the press of a button. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ask } from "@/api/client";
import { Problem, sayProblem } from "@/api/problems";
import mark from "@/mark.svg";
import { Button } from "@/parts/button";
import { Note } from "@/parts/states";
import { go, Link } from "@/router/router";
import { useSessionDoor } from "@/session/session";
import "./login.css";

const MAX_TRIES = 5;

/** The page of a link with a code. It waits for the button, because a preview of the link must not use it up. */
export function WelcomePage({ code }: { code: string }) {
  const { state, logIn } = useSessionDoor();
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  // Only after the user sees its account: a link of another user would let them work under that user's name.
  const told = useQuery({
    queryKey: ["link", code],
    queryFn: () => ask("post", "/session/links/look", { body: { code } }),
    enabled: code !== "",
    retry: (numFailed, error) => error instanceof Problem && error.mayPass && numFailed < MAX_TRIES,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const now = state.is === "in" ? state.session.name : null;
  const enter = async () => {
    setBusy(true);
    try {
      await logIn({ code });
      go("/jobs", {}, true);
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
          <p className="soft">This link works once and expires after an hour.</p>
        </div>
        {told.data && (
          <p className="login-who">
            You will be logged in as <strong>{told.data.name}</strong> ({told.data.role}).
          </p>
        )}
        {told.data && now !== null && now !== told.data.name && (
          <Note tone="warn">
            This browser is logged in as {now}. All its tabs will switch to {told.data.name}.
          </Note>
        )}
        {(problem ?? told.error) && <Note tone="bad">{problem ?? sayProblem(told.error)}</Note>}
        {!code && <Note tone="bad">The link is incomplete. Copy the whole link.</Note>}
        <Button
          look="main"
          isBusy={isBusy || (told.isFetching && !told.data)}
          disabled={!told.data}
          onClick={() => void enter()}
        >
          Log in
        </Button>
        <p className="login-other">
          <Link to="/">Log in with a password or a token</Link>
        </p>
      </main>
    </div>
  );
}
