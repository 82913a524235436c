/** A command in one line, as in a shell but without one: split at spaces, with quotation marks and backslashes. */

const PLAIN = /^[\w@%+=:,./-]+$/;

/** Return the words as one line that splits into the same words. */
export function joinCommand(words: readonly string[]): string {
  return words.map(quote).join(" ");
}

/** Return a word as it is written in a shell. */
export function quote(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** Return the words of a line; null if a quotation mark is not closed. */
export function splitCommand(line: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let mark = "";
  for (let place = 0; place < line.length; place += 1) {
    const sign = line[place] as string;
    if (mark === "'") {
      if (sign === "'") mark = "";
      else word += sign;
    } else if (sign === "\\" && (mark === "" || ['"', "\\"].includes(line[place + 1] ?? ""))) {
      place += 1;
      if (place >= line.length) return null;
      word = (word ?? "") + line[place];
    } else if (mark === '"') {
      if (sign === '"') mark = "";
      else word += sign;
    } else if (sign === "'" || sign === '"') {
      mark = sign;
      word ??= "";
    } else if (/\s/.test(sign)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + sign;
  }
  if (mark) return null;
  if (word !== null) words.push(word);
  return words;
}
