/** A log as one file. The server gives at most a few MiB at once, so it is read piece by piece. */

import { makeAddress, send } from "@/api/client";

export const PIECE_BYTES = 4 * 2 ** 20;
/** A piece may end before a letter that it would cut. */
const MAX_LETTER_BYTES = 4;

/** Return all of a log, to where it ends now. */
export async function readWhole(job: string, log: string): Promise<Blob> {
  const pieces: Blob[] = [];
  for (let offset = 0; ; ) {
    const query = { offset, max_bytes: PIECE_BYTES };
    const answer = await send("GET", makeAddress("/jobs/{job}/logs/{log}", { job, log }, query));
    const piece = await answer.blob();
    pieces.push(piece);
    // Of a long log the oldest part was dropped: the first piece then begins behind the offset that was asked for.
    const end = answer.headers.get("Legato-Log-End");
    offset = end === null ? offset + piece.size : Number(end);
    if (piece.size < PIECE_BYTES - MAX_LETTER_BYTES) return new Blob(pieces, { type: "text/plain" });
  }
}

/** Let the browser save a file. */
export function saveAs(content: Blob, name: string): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
