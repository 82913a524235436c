/** Turns what was picked in the browser into code to upload: an archive as it is, files and folders as a zip. */

import { countOf, formatBytes } from "@/format/numbers";
import { hashBytes } from "./sha256";
import { makeZip, type ZipFile } from "./zip";

/** A file and where it lies, from the folder on that was picked. */
export interface Picked {
  path: string;
  file: Blob & { name?: string };
}

/** Code that is ready to be uploaded. */
export interface Packed {
  /** What it is called on the page. */
  title: string;
  bytes: Uint8Array<ArrayBuffer>;
  sha256: string;
  /** Names of the files in it; null: another program packed it. */
  names: readonly string[] | null;
  /** How many files no program needs, and were left out. */
  numLeft: number;
}

/** So many bytes are packed in a browser; what is larger is better sent by the command line. */
const MAX_PACKED_BYTES = 256 * 2 ** 20;
const ARCHIVE = /\.(zip|tar|tgz|tar\.gz)$/i;
/** As the command line leaves out too. */
const FOLDERS_OUT: ReadonlySet<string> = new Set([
  ...[".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules"],
  ...[".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"],
]);
const FILES_OUT = /^(\.DS_Store|\.legatoignore|.*\.pyc)$/;

/** Return whether no program needs a file. */
export function isLeftOut(path: string): boolean {
  const parts = path.split("/");
  const name = parts.pop() ?? "";
  return FILES_OUT.test(name) || parts.some((part) => FOLDERS_OUT.has(part));
}

/** Pack what was picked. Throws an Error whose message says what is wrong with it. */
export async function pack(picked: readonly Picked[], isFolder = false): Promise<Packed> {
  const only = picked.length === 1 ? picked[0] : undefined;
  if (only && !isFolder && ARCHIVE.test(only.path)) return packArchive(only);
  const kept = picked.filter(({ path }) => !isLeftOut(path));
  if (kept.length === 0) throw new Error("The archive contains no usable files.");
  const numBytes = kept.reduce((sum, { file }) => sum + file.size, 0);
  if (numBytes > MAX_PACKED_BYTES) {
    const largest = kept.toSorted((one, other) => other.file.size - one.file.size)[0] as Picked;
    throw new Error(
      `These files take ${formatBytes(numBytes)}; the browser can pack at most ${formatBytes(MAX_PACKED_BYTES)}. ` +
        `The largest is ${largest.path}. Keep data in a directory on the machines and enter it as the data path.`,
    );
  }
  const names = isFolder ? dropTop(kept.map(({ path }) => path)) : kept.map(({ path }) => path);
  const files: ZipFile[] = [];
  for (const [place, { file }] of kept.entries()) {
    files.push({ name: names[place] as string, content: await readBytes(file, names[place] as string) });
  }
  const bytes = makeZip(files);
  const title = isFolder
    ? topOf(kept[0]?.path ?? "")
    : kept.length === 1
      ? (names[0] as string)
      : countOf(kept.length, "file");
  const numLeft = picked.length - kept.length;
  return { title, bytes, sha256: await hashBytes(bytes), names: names.toSorted(), numLeft };
}

async function packArchive({ path, file }: Picked): Promise<Packed> {
  if (file.size === 0) throw new Error(`${path} is empty.`);
  const bytes = await readBytes(file, path);
  if (!looksPacked(bytes)) {
    throw new Error(`${path} is not a zip or tar file. Pack the code again, or select its folder.`);
  }
  return { title: path, bytes, sha256: await hashBytes(bytes), names: null, numLeft: 0 };
}

/** Return whether bytes begin as a zip, a gzip or a tar does. */
export function looksPacked(bytes: Uint8Array): boolean {
  const text = (from: number, to: number) => String.fromCharCode(...bytes.subarray(from, to));
  return text(0, 2) === "PK" || (bytes[0] === 0x1f && bytes[1] === 0x8b) || text(257, 262) === "ustar";
}

async function readBytes(file: Blob, name: string): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch {
    // A browser refuses to read what was changed or moved since it was picked.
    throw new Error(`${name} can no longer be read because it was changed or moved. Select it again.`);
  }
}

function topOf(path: string): string {
  return path.split("/").filter(Boolean)[0] ?? "folder";
}

/** A picked folder is itself the top of its code, also where all that it holds lies in one folder. */
function dropTop(paths: readonly string[]): string[] {
  return paths.map((path) => path.split("/").filter(Boolean).slice(1).join("/"));
}
