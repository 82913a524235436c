/** The window that sets a password: one's own, or as an administrator that of another user. */

import { useState } from "react";
import { ask } from "@/api/client";
import { type FieldErrors, fieldErrorsOf, useOutdate } from "@/pages/projects/project-data";
import { Dialog } from "@/parts/dialog";
import { TextField } from "@/parts/field";
import { Note } from "@/parts/states";
import { useToasts } from "@/parts/toast";
import { useSession } from "@/session/session";

/** The dialog. */
export function PasswordDialog({ user, onClose }: { user: string; onClose: () => void }) {
  const session = useSession();
  const outdate = useOutdate();
  const toasts = useToasts();
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [wrong, setWrong] = useState<FieldErrors>({});
  const isOwn = session.name === user;
  const isSame = password === again;
  const save = async () => {
    try {
      await ask("put", "/users/{user}/password", { path: { user }, body: { password } });
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
    toasts.tell(isOwn ? "Password set. Log in again." : `Password of ${user} set.`);
    await outdate("people");
  };
  return (
    <Dialog
      title={isOwn ? "Set password" : `Set the password of ${user}`}
      action="Set password"
      isBlocked={!password || !isSame}
      onDo={save}
      onClose={onClose}
    >
      <Note tone="info">
        This ends all tokens and sessions of {user}
        {isOwn && ", including this one"}.
      </Note>
      <input type="text" hidden readOnly autoComplete="username" value={user} />
      <TextField
        label="New password"
        type="password"
        autoComplete="new-password"
        wrong={wrong.password}
        value={password}
        onValue={(value) => {
          setWrong({});
          setPassword(value);
        }}
      />
      <TextField
        label="Repeat password"
        type="password"
        autoComplete="new-password"
        wrong={again && !isSame ? "The passwords do not match." : null}
        value={again}
        onValue={setAgain}
      />
    </Dialog>
  );
}
