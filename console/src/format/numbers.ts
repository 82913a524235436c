/** Numbers as people read them. A narrow no-break space stands between digits and units. */

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** Return a count with its thousands apart: `12 400`. */
export function formatCount(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  return Math.round(count)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** Return a measured value with so many digits that count: `0.0412`, `1.3e-7`, `12 400`. */
export function formatValue(value: number | null | undefined, numDigits = 4): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "not a number" : value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e9) return writePower(value, numDigits - 2);
  if (size >= 10 ** (numDigits - 1)) return sign(value) + formatCount(size);
  const told = size.toPrecision(numDigits);
  return sign(value) + (told.includes(".") ? told.replace(/\.?0+$/, "") : told);
}

/** Return a measured value in few letters, for narrow columns: `0.412`, `3.8e-4`. */
export function formatShort(value: number | null | undefined): string {
  const size = Math.abs(value ?? 0);
  return size > 0 && size < 0.01 ? writePower(value ?? 0, 1) : formatValue(value, 3);
}

function writePower(value: number, numDecimals: number): string {
  return value.toExponential(numDecimals).replace(/^-/, "−").replace("e+", "e");
}

function sign(value: number): string {
  return value < 0 ? "−" : "";
}

/** Return bytes in the unit that suits: `512 B`, `3.4 MiB`, as the commands write them. */
export function formatBytes(numBytes: number | null | undefined): string {
  if (numBytes === null || numBytes === undefined) return "–";
  let size = numBytes;
  let unit = 0;
  while (size >= 1023.5 && unit < BYTE_UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return `${Number(size.toFixed(digits))} ${BYTE_UNITS[unit]}`;
}

/** Return a share of 1 as `42 %`. */
export function formatShare(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return `${Math.round(share * 100)} %`;
}

/** Return a word with its number: `1 job`, `3 jobs`. */
export function countOf(num: number, one: string, many = `${one}s`): string {
  return `${formatCount(num)} ${num === 1 ? one : many}`;
}

/** Return a place in an order: `1st`, `12th`, `23rd`. */
export function formatOrdinal(place: number): string {
  const isTeen = place % 100 > 10 && place % 100 < 14;
  const ending = isTeen ? "th" : (["th", "st", "nd", "rd"][place % 10] ?? "th");
  return `${formatCount(place)}${ending}`;
}
