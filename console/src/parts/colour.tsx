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

/** With the same colour, jobs look different so often: plain, with dots, with lines. */
const NUM_MARKS = 3;
const NUM_LOOKS = NUM_COLOURS * NUM_MARKS;

/** Looks by id: the colour's place, and 12 more for each mark. */
const given = new Map<string, number>();

/**
 * Give those that are looked at together looks that differ, as far as there are enough: colours first, then the
 * colours with a mark. Each keeps its look on all pages, also when others come before it.
 */
export function keepApart(ids: readonly string[]): void {
  const taken = new Set<number>();
  const known = ids.filter((id) => given.has(id));
  for (const id of [...known, ...ids.filter((id) => !given.has(id))].slice(0, NUM_LOOKS)) {
    const look = findFree(given.get(id) ?? colourPlace(id), taken);
    given.set(id, look);
    taken.add(look);
  }
}

/** Return the wanted look, or the next one that is free. */
function findFree(wanted: number, taken: ReadonlySet<number>): number {
  if (!taken.has(wanted)) return wanted;
  for (let step = 0; step < NUM_LOOKS; step += 1) {
    const look = ((wanted + step) % NUM_COLOURS) + NUM_COLOURS * Math.floor(step / NUM_COLOURS);
    if (!taken.has(look)) return look;
  }
  return wanted;
}

/** Return the colour of a job, as CSS. */
export function jobColour(id: string): string {
  return `var(--job-${placeOf(id)})`;
}

/** Return the mark of a job beside its colour: undefined for none, 1 for dots, 2 for lines. */
export function jobMark(id: string): number | undefined {
  return Math.floor((given.get(id) ?? 0) / NUM_COLOURS) || undefined;
}

function placeOf(id: string): number {
  return (given.get(id) ?? colourPlace(id)) % NUM_COLOURS;
}

/**
 * Return the colours of those that are compared: each its own one, and where two have the same the later one another
 * that is free, here alone.
 */
export function coloursApart(ids: readonly string[]): ReadonlyMap<string, string> {
  const own = ids.map((id) => [id, placeOf(id)] as const);
  const taken = new Set(own.map(([, place]) => place));
  const used = new Set<number>();
  return new Map(
    own.map(([id, place]) => {
      let free = place;
      if (used.has(place)) while (taken.has(free) && taken.size < NUM_COLOURS) free = (free + 1) % NUM_COLOURS;
      used.add(free);
      taken.add(free);
      return [id, `var(--job-${free})`];
    }),
  );
}

interface SwatchProps {
  id?: string | undefined;
  /** In place of that of the job. */
  colour?: string | undefined;
}

/** A little square that looks like a job. */
export function Swatch({ id = "", colour }: SwatchProps) {
  const mark = colour === undefined ? jobMark(id) : undefined;
  return (
    <span className="swatch" data-mark={mark} style={{ backgroundColor: colour ?? jobColour(id) }} aria-hidden="true" />
  );
}
