/** Names of jobs that are shown together: those that share one have what tells them apart behind it. */

interface Named {
  id: string;
  name: string;
}

const TAIL_LENGTHS = [4, 6, 8];

/** Return what each is called among the others, by id: `digits`, or `digits ·0a4f` with the end of its id. */
export function tellApart(jobs: readonly Named[]): ReadonlyMap<string, string> {
  const byName = new Map<string, string[]>();
  for (const { id, name } of jobs) byName.set(name, [...(byName.get(name) ?? []), id]);
  return new Map(jobs.map(({ id, name }) => [id, nameAmong(id, name, byName.get(name) ?? [])]));
}

/** Return a name with so many letters at most: what tells it apart stays, and what stands before that is cut. */
export function cutName(name: string, most: number): string {
  if (name.length <= most) return name;
  const tail = / ·[\w-]+$/.exec(name)?.[0] ?? "";
  return `${name.slice(0, Math.max(0, most - tail.length - 1))}…${tail}`;
}

function nameAmong(id: string, name: string, same: readonly string[]): string {
  const others = same.filter((other) => other !== id);
  if (others.length === 0) return name;
  const length = TAIL_LENGTHS.find((num) => others.every((other) => !other.endsWith(id.slice(-num))));
  return `${name} ·${length ? id.slice(-length) : id}`;
}
