/** Sends code to the server; what is there already is not sent again. */

import { API, send } from "@/api/client";
import { Problem } from "@/api/problems";
import type { Packed } from "./packing/pack";

/** Upload packed code. Throws a Problem that says what is wrong with it. */
export async function upload(packed: Packed): Promise<void> {
  const address = `${API}/code/${packed.sha256}`;
  try {
    await send("HEAD", address);
    return;
  } catch (thrown) {
    if (!(thrown instanceof Problem && thrown.status === 404)) throw thrown;
  }
  await send("PUT", address, {
    headers: { "Content-Type": "application/octet-stream", Accept: "application/json" },
    body: packed.bytes,
  });
}
