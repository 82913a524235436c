/** A command in one line, as in a shell but without one. */

import { quoteWord } from "@/pages/submit/command";

/** Return the words as one line that splits into the same words. */
export function joinCommand(words: readonly string[]): string {
  return words.map(quoteWord).join(" ");
}
