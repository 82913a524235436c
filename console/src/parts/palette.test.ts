import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const CSS = readFileSync("src/styles/tokens.css", "utf8");
const [LIGHT = "", DARK = ""] = CSS.split(/--job-0:/).slice(1);

type Colour = readonly [number, number, number];

/** How each kind of eye sees linear RGB (Machado, Oliveira and Fernandes, 2009). */
const EYES: Record<string, readonly Colour[]> = {
  usual: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  "without red": [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  "without green": [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
};

function palette(css: string): Colour[] {
  return [...`--job-0:${css}`.matchAll(/--job-\d+: #(\w\w)(\w\w)(\w\w);/g)].slice(0, 12).map(([, ...parts]) => {
    const [r = 0, g = 0, b = 0] = parts.map((part) => {
      const value = Number.parseInt(part, 16) / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return [r, g, b];
  });
}

function times(matrix: readonly Colour[], [x, y, z]: Colour): Colour {
  const [r = 0, g = 0, b = 0] = matrix.map((row) => row[0] * x + row[1] * y + row[2] * z);
  return [r, g, b];
}

function toOklab(colour: Colour): Colour {
  const cones = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    colour.map((part) => Math.min(1, Math.max(0, part))) as unknown as Colour,
  ).map(Math.cbrt) as unknown as Colour;
  return times(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766],
    ],
    cones,
  );
}

/** Return the distance of the two colours that are hardest to tell apart. */
function leastDistance(colours: readonly Colour[], eye: string): number {
  const seen = colours.map((colour) => toOklab(times(EYES[eye] as readonly Colour[], colour)));
  return Math.min(
    ...seen.flatMap((one, place) =>
      seen.slice(place + 1).map((other) => Math.hypot(...one.map((part, axis) => part - (other[axis] as number)))),
    ),
  );
}

describe.each([
  ["light", LIGHT],
  ["dark", DARK],
])("the colours of jobs, %s", (_, css) => {
  it.each([
    ["usual", 0.09],
    ["without red", 0.045],
    ["without green", 0.045],
  ])("differ for eyes: %s", (eye, least) => {
    expect(palette(css)).toHaveLength(12);
    expect(leastDistance(palette(css), eye)).toBeGreaterThan(least);
  });
  it("have none that looks like the red of what failed", () => {
    for (const colour of palette(css)) {
      const [, a, b] = toOklab(colour);
      const hue = (Math.atan2(b, a) * 180) / Math.PI;
      expect(Math.hypot(a, b) > 0.1 && hue > 0 && hue < 50).toBe(false);
    }
  });
});
