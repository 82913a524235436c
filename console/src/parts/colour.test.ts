import { expect, it } from "vitest";
import { colourPlace, coloursApart, jobColour, jobMark, keepApart } from "./colour";

it("jobs that are shown together get different colours, and keep them", () => {
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

it("beyond twelve jobs, those of one colour have marks, and no job changes its look when others come", () => {
  const ids = Array.from({ length: 50 }, (_, number) => `m-${number}`);
  const lookOf = (id: string) => `${jobColour(id)} ${jobMark(id) ?? 0}`;
  keepApart(ids.slice(20, 50));
  const before = ids.slice(20, 50).map(lookOf);
  expect(new Set(before).size).toBe(30);
  expect(ids.slice(20, 32).map(jobMark)).toEqual(Array(12).fill(undefined));
  keepApart(ids.slice(14, 50));
  expect(ids.slice(20, 50).map(lookOf)).toEqual(before);
  expect(new Set(ids.slice(14, 50).map(lookOf)).size).toBe(36);
});

it("compared jobs keep their colours, except where two have the same", () => {
  const ids = Array.from({ length: 200 }, (_, number) => `c-${number}`);
  const [one, same] = ids.filter((id) => colourPlace(id) === colourPlace("c-0")) as [string, string];
  const third = ids.find((id) => colourPlace(id) === (colourPlace("c-0") + 1) % 12) as string;
  const own = [one, same, third].map(jobColour);
  const given = [...coloursApart([one, same, third]).values()];
  expect(given).toEqual([own[0], given[1], own[2]]);
  expect(new Set(given).size).toBe(3);
  expect(jobColour(same)).toBe(own[1]);
});
