/** Packs files into a zip that is not compressed. The same files always give the same bytes, so that they are sent once. */

import { zipSync } from "fflate";

export interface ZipFile {
  /** From the top of the archive on, with slashes. */
  name: string;
  content: Uint8Array;
}

const UNIX = 3;
const MAX_FILES = 0xffff;

/** Return a zip with these files, in the order of their names. Throws an Error if they are more than a zip can hold. */
export function makeZip(files: readonly ZipFile[]): Uint8Array<ArrayBuffer> {
  if (files.length > MAX_FILES) throw new Error("There are too many files for a zip archive.");
  const sorted = files.toSorted((one, other) => (one.name < other.name ? -1 : 1));
  // A zip holds local times, from 1980 on.
  const facts = { level: 0, os: UNIX, mtime: new Date(1980, 0, 1) } as const;
  return zipSync(
    Object.fromEntries(
      sorted.map(({ name, content }) => [name, [content, { ...facts, attrs: (modeOf(content) << 16) >>> 0 }]]),
    ),
  );
}

/** Browsers do not tell whether a file may be run: what begins with `#!` may. */
function modeOf(content: Uint8Array): number {
  return content[0] === 0x23 && content[1] === 0x21 ? 0o100755 : 0o100644;
}
