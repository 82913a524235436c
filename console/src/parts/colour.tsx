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

const moved = new Map<string, number>();

/**
 * Give those that are looked at together colours that differ, as far as there are enough: the first in the
 * list keeps the own one. From then on the others have theirs on all pages.
 */
export function keepApart(ids: readonly string[]): void {
  const taken = new Set<number>();
  for (const id of ids.slice(0, NUM_COLOURS)) {
    let place = moved.get(id) ?? colourPlace(id);
    while (taken.has(place)) place = (place + 1) % NUM_COLOURS;
    if (place !== colourPlace(id)) moved.set(id, place);
    taken.add(place);
  }
}

/** Return the colour of a job, as CSS. */
export function jobColour(id: string): string {
  return `var(--job-${moved.get(id) ?? colourPlace(id)})`;
}

/**
 * Return the colours of those that are compared: each its own one, and where two have the same the later one another
 * that is free, here alone.
 */
export function coloursApart(ids: readonly string[]): ReadonlyMap<string, string> {
  const own = ids.map((id) => [id, moved.get(id) ?? colourPlace(id)] as const);
  const taken = new Set(own.map(([, place]) => place));
  const given = new Set<number>();
  return new Map(
    own.map(([id, place]) => {
      let free = place;
      if (given.has(place)) while (taken.has(free) && taken.size < NUM_COLOURS) free = (free + 1) % NUM_COLOURS;
      given.add(free);
      taken.add(free);
      return [id, `var(--job-${free})`];
    }),
  );
}

/** A little square in the colour of a job. */
export function Swatch({ id, colour }: { id?: string | undefined; colour?: string | undefined }) {
  return <span className="swatch" style={{ background: colour ?? jobColour(id ?? "") }} aria-hidden="true" />;
}
