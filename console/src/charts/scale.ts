/** The scale of a chart's values. Pure. */

/** Return a chart's title and scale: a logarithmic one has no place for 0 and less, so such a chart says that it is linear. */
export function chooseScale(
  name: string,
  isLog: boolean,
  values: readonly (readonly (number | null)[])[],
): { title: string; isLog: boolean } {
  const isPositive = values.every((line) => line.every((value) => value === null || value > 0));
  return { title: isLog && !isPositive ? `${name} (linear: it has values ≤ 0)` : name, isLog: isLog && isPositive };
}
