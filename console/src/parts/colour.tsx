/** Colours of jobs: the same one everywhere, found from the id alone. */

const NUM_COLOURS = 12;

/** Return a colour's place in the palette, 0 to 11. */
export function colourPlace(id: string): number {
  // FNV-1a: ids that follow one another get colours that do not.
  let hash = 0x811c9dc5;
  for (let place = 0; place < id.length; place += 1) {
    hash ^= id.charCodeAt(place);
    hash = Math.imul(hash, 0x01000193);
  }
  // Its low bits are the least mixed ones.
  return ((hash ^ (hash >>> 15)) >>> 0) % NUM_COLOURS;
}

/** Return the colour of a job, as CSS. */
export function jobColour(id: string): string {
  return `var(--job-${colourPlace(id)})`;
}

/** A little square in the colour of a job. */
export function Swatch({ id, colour }: { id?: string; colour?: string }) {
  return <span className="swatch" style={{ background: colour ?? jobColour(id ?? "") }} aria-hidden="true" />;
}
