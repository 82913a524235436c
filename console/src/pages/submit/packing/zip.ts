/** Writes files into a zip that is not compressed. The same files always give the same bytes, so that they are sent once. */

export interface ZipFile {
  /** From the top of the archive on, with slashes. */
  name: string;
  content: Uint8Array;
}

const LOCAL_BYTES = 30;
const CENTRAL_BYTES = 46;
const END_BYTES = 22;
const VERSION = 20;
const MADE_ON_UNIX = (3 << 8) | VERSION;
const NAMES_ARE_UTF8 = 0x0800;
/** The first day that a zip can tell. */
const DATE = 0x0021;
const MAX_FILES = 0xffff;
const MAX_BYTES = 0xffffffff;
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

/** Return the CRC-32 of bytes. */
export function sumBytes(bytes: Uint8Array): number {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = (CRC_TABLE[(sum ^ byte) & 0xff] as number) ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}

/** Return a zip with these files, in the order of their names. Throws an Error if they are more than a zip can hold. */
export function makeZip(files: readonly ZipFile[]): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder();
  const sorted = files
    .map(({ name, content }) => ({ name: encoder.encode(name), text: name, content, sum: sumBytes(content) }))
    .sort((one, other) => (one.text < other.text ? -1 : one.text > other.text ? 1 : 0));
  const numBytes = sorted.reduce(
    (sum, file) => sum + LOCAL_BYTES + CENTRAL_BYTES + 2 * file.name.length + file.content.length,
    END_BYTES,
  );
  if (sorted.length > MAX_FILES || numBytes > MAX_BYTES)
    throw new Error("These files are too large for a zip archive.");
  const zip = new Uint8Array(numBytes);
  const view = new DataView(zip.buffer);
  const starts: number[] = [];
  let at = 0;
  for (const file of sorted) {
    starts.push(at);
    view.setUint32(at, 0x04034b50, true);
    view.setUint16(at + 4, VERSION, true);
    writeFacts(view, at + 6, file);
    zip.set(file.name, at + LOCAL_BYTES);
    zip.set(file.content, at + LOCAL_BYTES + file.name.length);
    at += LOCAL_BYTES + file.name.length + file.content.length;
  }
  const central = at;
  for (const [place, file] of sorted.entries()) {
    view.setUint32(at, 0x02014b50, true);
    view.setUint16(at + 4, MADE_ON_UNIX, true);
    view.setUint16(at + 6, VERSION, true);
    writeFacts(view, at + 8, file);
    view.setUint32(at + 38, (modeOf(file.content) << 16) >>> 0, true);
    view.setUint32(at + 42, starts[place] as number, true);
    zip.set(file.name, at + CENTRAL_BYTES);
    at += CENTRAL_BYTES + file.name.length;
  }
  view.setUint32(at, 0x06054b50, true);
  view.setUint16(at + 8, sorted.length, true);
  view.setUint16(at + 10, sorted.length, true);
  view.setUint32(at + 12, at - central, true);
  view.setUint32(at + 16, central, true);
  return zip;
}

interface Facts {
  name: Uint8Array;
  content: Uint8Array;
  sum: number;
}

/** Write what both records of a file have in common; the method is 0: stored as it is. */
function writeFacts(view: DataView, at: number, { name, content, sum }: Facts): void {
  view.setUint16(at, NAMES_ARE_UTF8, true);
  view.setUint16(at + 6, DATE, true);
  view.setUint32(at + 8, sum, true);
  view.setUint32(at + 12, content.length, true);
  view.setUint32(at + 16, content.length, true);
  view.setUint16(at + 20, name.length, true);
}

/** Browsers do not tell whether a file may be run: what begins with `#!` may. */
function modeOf(content: Uint8Array): number {
  return content[0] === 0x23 && content[1] === 0x21 ? 0o100755 : 0o100644;
}
