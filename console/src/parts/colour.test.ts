import { expect, it } from "vitest";
import { colourPlace, jobColour, keepApart } from "./colour";

it("gives those that are looked at together colours of their own, and keeps them", () => {
  const ids = Array.from({ length: 200 }, (_, number) => `j-${number}`);
  const [one, other] = ids.filter((id) => colourPlace(id) === colourPlace("j-0")) as [string, string];
  expect(jobColour(one)).toBe(jobColour(other));
  keepApart([one, other]);
  const colours = [jobColour(one), jobColour(other)];
  expect(colours[0]).toBe(`var(--job-${colourPlace(one)})`);
  expect(colours[1]).not.toBe(colours[0]);
  keepApart([other, one]);
  expect([jobColour(one), jobColour(other)]).toEqual(colours);
  keepApart(ids);
  expect(new Set(ids.slice(0, 12).map(jobColour)).size).toBe(12);
});
