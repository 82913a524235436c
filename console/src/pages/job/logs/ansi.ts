/**
 * Lines of logs as pieces of text with their colours. What a program writes is text and nothing else: never HTML.
 * No library: ansi_up returns HTML; anser leaves links and control characters in the text, and colours that not both themes can show.
 */

export interface Piece {
  text: string;
  /** Names of classes, such as `ansi-red ansi-bold`. */
  look: string;
}

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"] as const;
// A sequence for colours, any other sequence of a terminal, or a sign that draws nothing.
const SEQUENCE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what it is about
  /\x1b\[([\d;]*)m|\x1b\[[\d;?<=>!]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: those are what it is about
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/;

interface Look {
  colour: string;
  isBold: boolean;
  isFaint: boolean;
}

/**
 * Return the pieces of one line, of its first `most` characters. What a progress bar has written over is left out, as on
 * a terminal, and counts for nothing.
 */
export function readAnsi(line: string, most = Number.POSITIVE_INFINITY): Piece[] {
  const shown = afterReturn(line).slice(0, most);
  const pieces: Piece[] = [];
  const look: Look = { colour: "", isBold: false, isFaint: false };
  let from = 0;
  const add = (text: string) => {
    if (!text) return;
    const name = nameLook(look);
    const last = pieces.at(-1);
    if (last?.look === name) last.text += text;
    else pieces.push({ text, look: name });
  };
  for (const found of shown.matchAll(SEQUENCE)) {
    add(shown.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[1] !== undefined) change(look, found[1]);
  }
  add(shown.slice(from));
  return pieces;
}

/** Return the text of a line without colours. */
export function stripAnsi(line: string): string {
  return CONTROL.test(line) ? afterReturn(line).replace(SEQUENCE, "") : line;
}

/** Return what of a line is not written over by what came behind it. */
export function afterReturn(line: string): string {
  const end = line.replace(/\r+$/, "");
  const place = end.lastIndexOf("\r");
  return place < 0 ? end : end.slice(place + 1);
}

function nameLook({ colour, isBold, isFaint }: Look): string {
  return [colour && `ansi-${colour}`, isBold && "ansi-bold", isFaint && "ansi-faint"].filter(Boolean).join(" ");
}

function change(look: Look, codes: string): void {
  const numbers = codes.split(";").map(Number);
  for (let place = 0; place < numbers.length; place += 1) {
    const code = numbers[place] as number;
    if (code === 0) Object.assign(look, { colour: "", isBold: false, isFaint: false });
    else if (code === 1) look.isBold = true;
    else if (code === 2) look.isFaint = true;
    else if (code === 22) Object.assign(look, { isBold: false, isFaint: false });
    else if (code >= 30 && code <= 37) look.colour = COLOURS[code - 30] as string;
    else if (code >= 90 && code <= 97) look.colour = COLOURS[code - 90] as string;
    else if (code === 39) look.colour = "";
    else if (code === 38 || code === 48) {
      // One of many colours: the page has eight that can be read in light and dark. Its numbers are skipped.
      const skipped = numbers[place + 1] === 5 ? 2 : 4;
      if (code === 38 && skipped === 2) look.colour = COLOURS[(numbers[place + 2] ?? 0) % 8] as string;
      place += skipped;
    }
  }
}

export type Level = "error" | "warning" | "info" | "debug";

const LEVELS: readonly (readonly [Level, RegExp])[] = [
  ["error", /\b(?:error|critical|fatal|exception|traceback)\b|\b\w+(?:Error|Exception)\b/i],
  ["warning", /\bwarn(?:ing)?\b|\b\w+Warning\b/i],
  ["debug", /\b(?:debug|trace)\b/i],
];

/** Return the level of a line, by its words; "info" where it says nothing. */
export function findLevel(text: string): Level {
  for (const [level, pattern] of LEVELS) if (pattern.test(text)) return level;
  return "info";
}
