/** Command lines as the server reads them: split as a shell does, and nothing in them is replaced. */

export type ParameterValue = string | number | boolean;

/** Words of a line, or why it cannot be split. */
export type Split = { words: string[]; wrong: null } | { words: null; wrong: string };

/** Split a line into words, as a POSIX shell does. */
export function splitCommand(line: string): Split {
  const words: string[] = [];
  let word: string | null = null;
  let quote: '"' | "'" | null = null;
  for (let at = 0; at < line.length; at += 1) {
    const character = line[at] as string;
    if (quote === "'") {
      if (character === quote) quote = null;
      else word += character;
    } else if (character === "\\") {
      const next = line[at + 1];
      if (next === undefined) return { words: null, wrong: "The command ends with a backslash." };
      // Between double quotes a backslash is one of the text, but for before a quote or another backslash.
      word = (word ?? "") + (quote === '"' && next !== '"' && next !== "\\" ? `\\${next}` : next);
      at += 1;
    } else if (quote === '"') {
      if (character === quote) quote = null;
      else word += character;
    } else if (character === '"' || character === "'") {
      quote = character;
      word ??= "";
    } else if (/\s/.test(character)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + character;
  }
  if (quote) return { words: null, wrong: `The quote ${quote} is not closed.` };
  if (word !== null) words.push(word);
  return { words, wrong: null };
}

/** Return a word as it must be written in a line to be read as that word again. */
export function quoteWord(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  return `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** Return what stands in a field of a parameter as its value: a number, true, false, or the text itself. */
export function readValue(text: string): ParameterValue {
  const told = text.trim();
  if (told === "true" || told === "false") return told === "true";
  if (/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(told)) {
    const number = Number(told);
    // What a number does not hold exactly stays the text that was written: 1.0 would be sent as 1.
    if (Number.isInteger(number) ? Number.isSafeInteger(number) && /^-?\d+$/.test(told) : Number.isFinite(number)) {
      return number;
    }
  }
  return text;
}

/** Return parameters as words behind the command, as the server does. */
export function writeParameters(parameters: Readonly<Record<string, ParameterValue>>): string[] {
  return Object.entries(parameters).flatMap(([name, value]) => {
    if (typeof value === "boolean") return value ? [`--${name}`] : [];
    const text = String(value);
    return text.startsWith("-") ? [`--${name}=${text}`] : [`--${name}`, text];
  });
}
