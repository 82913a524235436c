import { expect, it } from "vitest";
import { colourPlace, coloursApart, jobColour, keepApart } from "./colour";

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

it("who is compared keeps the own colour but where two have the same, and there the others are left as they are", () => {
  const ids = Array.from({ length: 200 }, (_, number) => `c-${number}`);
  const [one, same] = ids.filter((id) => colourPlace(id) === colourPlace("c-0")) as [string, string];
  const third = ids.find((id) => colourPlace(id) === (colourPlace("c-0") + 1) % 12) as string;
  const own = [one, same, third].map(jobColour);
  const given = [...coloursApart([one, same, third]).values()];
  expect(given).toEqual([own[0], given[1], own[2]]);
  expect(new Set(given).size).toBe(3);
  expect(jobColour(same)).toBe(own[1]);
});
