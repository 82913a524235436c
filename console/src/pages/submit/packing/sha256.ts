/** SHA-256. Browsers have their own only where a page came over TLS or from this machine; elsewhere it is reckoned here. */

const ROUND_KEYS = makeConstants(64, 3);
const START = makeConstants(8, 2);

/** Return the first 32 bits behind the point of the second or third roots of the first primes. */
function makeConstants(num: number, root: 2 | 3): Uint32Array {
  const found: number[] = [];
  for (let number = 2; found.length < num; number += 1) {
    let isPrime = true;
    for (let divisor = 2; divisor * divisor <= number; divisor += 1) if (number % divisor === 0) isPrime = false;
    if (!isPrime) continue;
    const value = root === 2 ? Math.sqrt(number) : Math.cbrt(number);
    found.push((value - Math.floor(value)) * 2 ** 32);
  }
  return Uint32Array.from(found);
}

/** Return the SHA-256 of bytes in hexadecimal digits. */
export async function hashBytes(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const subtle = globalThis.crypto?.subtle;
  if (!subtle) return hashHere(bytes);
  return toHex(new Uint8Array(await subtle.digest("SHA-256", bytes)));
}

/** As `hashBytes`, without the browser's help. */
export function hashHere(bytes: Uint8Array): string {
  const state = START.slice();
  const numWhole = bytes.length - (bytes.length % 64);
  const words = new Uint32Array(64);
  for (let at = 0; at < numWhole; at += 64) mixBlock(state, words, bytes, at);
  const rest = bytes.length - numWhole;
  const tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(bytes.subarray(numWhole));
  tail[rest] = 0x80;
  const view = new DataView(tail.buffer);
  view.setUint32(tail.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(tail.length - 4, (bytes.length << 3) >>> 0);
  for (let at = 0; at < tail.length; at += 64) mixBlock(state, words, tail, at);
  const digest = new Uint8Array(32);
  const out = new DataView(digest.buffer);
  for (const [place, word] of state.entries()) out.setUint32(4 * place, word);
  return toHex(digest);
}

function mixBlock(state: Uint32Array, words: Uint32Array, bytes: Uint8Array, at: number): void {
  const turn = (word: number, by: number) => (word >>> by) | (word << (32 - by));
  for (let place = 0; place < 64; place += 1) {
    if (place < 16) {
      const from = at + 4 * place;
      words[place] =
        ((bytes[from] as number) << 24) |
        ((bytes[from + 1] as number) << 16) |
        ((bytes[from + 2] as number) << 8) |
        (bytes[from + 3] as number);
      continue;
    }
    const [old, young] = [words[place - 15] as number, words[place - 2] as number];
    const first = turn(old, 7) ^ turn(old, 18) ^ (old >>> 3);
    const second = turn(young, 17) ^ turn(young, 19) ^ (young >>> 10);
    words[place] = (words[place - 16] as number) + first + (words[place - 7] as number) + second;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let place = 0; place < 64; place += 1) {
    const chosen = (e & f) ^ (~e & g);
    const second = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
    const one = (h + second + chosen + (ROUND_KEYS[place] as number) + (words[place] as number)) | 0;
    const most = (a & b) ^ (a & c) ^ (b & c);
    const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + most) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  for (const [place, value] of [a, b, c, d, e, f, g, h].entries()) state[place] = (state[place] as number) + value;
}

function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
