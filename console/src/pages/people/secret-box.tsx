/** A token or another secret that is shown this once. */

import { CopyButton } from "@/parts/button";
import { Note } from "@/parts/states";

/** The token or another secret, with a button that copies it. */
export function SecretBox({ secret, what = "token" }: { secret: string; what?: string }) {
  return (
    <div className="stack">
      <Note tone="warn">Copy the {what} now. It is shown only once.</Note>
      <div className="secret">
        <code className="grow">{secret}</code>
        <CopyButton text={secret} what={`the ${what}`} label="Copy" />
      </div>
    </div>
  );
}
