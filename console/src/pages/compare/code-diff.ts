/** The differences of two programs that were uploaded: which files, and which lines of them. Pure but for `fetchCode`. */

import { unzipSync } from "fflate";
import { makeAddress, send } from "@/api/client";
import { formatBytes } from "@/format/numbers";
import { diffLines, type Hunk, splitLines } from "./line-diff";

const MAX_ARCHIVE_BYTES = 30 * 2 ** 20;
/** Of larger files only the bytes are compared. */
const MAX_TEXT_BYTES = 2 ** 20;
/** Of one program. Files beyond are named only. */
const MAX_TOTAL_BYTES = 40_000_000;
const MAX_FILE_LINES = 20_000;
/** Of all files together, so that the browser answers again in less than a second; files beyond are named only. */
const MAX_TEXTS = { chars: 10_000_000, lines: 100_000, steps: 4_000_000 };

/** Files of a program by path; a number: the bytes of one that was not unpacked. */
export type Code = ReadonlyMap<string, Uint8Array | number>;

export interface FileDiff {
  path: string;
  kind: "added" | "removed" | "changed" | "not compared";
  /** Empty with `note`: the lines are not compared. */
  hunks: Hunk[];
  note?: string;
}

/** Return the files of an uploaded program. */
export async function fetchCode(sha256: string, signal: AbortSignal): Promise<Code> {
  const answer = await send("GET", makeAddress("/code/{sha256}/archive", { sha256 }), { signal });
  const numBytes = Number(answer.headers.get("Content-Length"));
  if (numBytes > MAX_ARCHIVE_BYTES) {
    await answer.body?.cancel();
    throw new Error(
      `The code is too large to compare here (${formatBytes(numBytes)} of at most ${formatBytes(MAX_ARCHIVE_BYTES)}).`,
    );
  }
  return unpack(new Uint8Array(await answer.arrayBuffer()));
}

/** Return the files of a zip archive; those beyond the limit are named only, before anything of them is unpacked. */
export function unpack(archive: Uint8Array, maxBytes = MAX_TOTAL_BYTES): Code {
  const code = new Map<string, Uint8Array | number>();
  let total = 0;
  const files = unzipSync(archive, {
    filter: ({ name, originalSize }) => {
      if (name.endsWith("/")) return false;
      code.set(name, originalSize);
      if (total + originalSize > maxBytes) return false;
      total += originalSize;
      return true;
    },
  });
  for (const [path, content] of Object.entries(files)) code.set(path, content);
  return code;
}

/** Return the files that differ, or may differ, in the order of their paths. */
export function compareCode(before: Code, after: Code): FileDiff[] {
  const paths = [...new Set([...before.keys(), ...after.keys()])].sort();
  const left = { ...MAX_TEXTS };
  return paths.flatMap((path) => {
    const [old, now] = [before.get(path), after.get(path)];
    const kind = old === undefined ? "added" : now === undefined ? "removed" : "changed";
    const tell = (note: string): FileDiff => ({ path, kind, hunks: [], note });
    if (typeof old === "number" || typeof now === "number") {
      const isMaybeSame = kind === "changed" && sizeOf(old) === sizeOf(now);
      if (isMaybeSame)
        return [
          { ...tell("Both have the same size. The code is too large to compare them here."), kind: "not compared" },
        ];
      return [tell("The code is too large to show its lines here.")];
    }
    if (old && now && isSame(old, now)) return [];
    if (Math.max(sizeOf(old), sizeOf(now)) > MAX_TEXT_BYTES)
      return [tell("Larger than 1 MiB, so its lines are not shown.")];
    if (Math.min(left.chars, left.lines, left.steps) <= 0)
      return [tell("Too many differences to show: its lines are not compared.")];
    const [first, second] = [readText(old), readText(now)];
    if (first === null || second === null) return [tell("Not a text file.")];
    const [one, other] = [splitLines(dropMark(first)), splitLines(dropMark(second))];
    left.chars -= first.length + second.length;
    if (Math.max(one.length, other.length) > MAX_FILE_LINES)
      return [tell(`It has more than ${MAX_FILE_LINES} lines, so they are not shown.`)];
    left.lines -= one.length + other.length;
    const hunks = diffLines(one, other, left);
    const note = sayRest(kind, first, second, hunks);
    return [{ path, kind, hunks, ...(note ? { note } : {}) }];
  });
}

/** Return what differs in two texts beside their lines. */
function sayRest(kind: FileDiff["kind"], before: string, after: string, hunks: readonly Hunk[]): string | undefined {
  if (kind !== "changed") return hunks.length ? undefined : "Empty file.";
  if (before.startsWith(MARK) === after.startsWith(MARK)) return hunks.length ? undefined : "Only line ends differ.";
  if (hunks.length) return "The byte order mark (BOM) at the beginning differs, too.";
  const isAll = dropMark(before) === dropMark(after);
  return `Only the byte order mark (BOM) at the beginning${isAll ? " differs" : " and line ends differ"}.`;
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  if (one.length !== other.length) return false;
  for (let place = 0; place < one.length; place += 1) if (one[place] !== other[place]) return false;
  return true;
}

function sizeOf(content: Uint8Array | number | undefined): number {
  return typeof content === "number" ? content : (content?.length ?? 0);
}

const MARK = "\ufeff";

function dropMark(text: string): string {
  return text.startsWith(MARK) ? text.slice(1) : text;
}

function readText(content: Uint8Array | undefined): string | null {
  if (content?.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return null;
  }
}
