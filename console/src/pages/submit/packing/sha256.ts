/** SHA-256. Browsers offer it only to pages that came over TLS or from this machine; elsewhere a library computes it. */

import { bytesToHex } from "@noble/hashes/utils.js";

/** Return the SHA-256 of bytes in hexadecimal digits. */
export async function hashBytes(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const subtle = globalThis.crypto?.subtle;
  if (subtle) return bytesToHex(new Uint8Array(await subtle.digest("SHA-256", bytes)));
  const { sha256 } = await import("@noble/hashes/sha2.js");
  return bytesToHex(sha256(bytes));
}
