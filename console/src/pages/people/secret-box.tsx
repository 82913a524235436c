/** A token that is shown this once. */

import { CopyButton } from "@/parts/button";
import { Note } from "@/parts/states";

/** The token, with a button that copies it. */
export function SecretBox({ secret }: { secret: string }) {
  return (
    <div className="stack">
      <Note tone="warn">Copy the token now. It is shown only once.</Note>
      <div className="secret">
        <code className="grow">{secret}</code>
        <CopyButton text={secret} what="the token" label="Copy" />
      </div>
    </div>
  );
}
