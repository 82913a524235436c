// @vitest-environment jsdom
import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { keepApart } from "@/parts/colour";
import { type Look, TimelineChart } from "./timeline-chart";

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

const short = { key: "j-1", title: "anna/tides", isHidden: false, times: [0], slots: [2] };
const long = { ...short, key: "j-2", title: "anna/digits-with-all-the-augmentations ·0a4f" };

function draw(look: Look, width: number, items = [short, long]): HTMLElement {
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(width);
  const timeline = { since: 0, until: 60, num_slots: { times: [0], values: [8] }, items };
  const { container } = render(
    <TimelineChart
      timeline={timeline}
      look={look}
      since={0}
      until={60}
      moves={[]}
      lit={null}
      cursor={null}
      onCursor={() => {}}
      onZoom={() => {}}
    />,
  );
  return container;
}

function labelsOf(look: Look, width: number): (string | undefined)[] {
  return [...draw(look, width).querySelectorAll(".timeline-name")].map((label) => {
    const title = label.querySelector("title")?.textContent ?? "";
    return label.textContent?.slice(title.length);
  });
}

it.each([
  ["lines", 1600, ["2 anna/tides", `2 ${long.title}`]],
  ["lines", 800, ["2 anna/tides", "2 anna/digits-with… ·0a4f"]],
  ["gantt", 800, ["anna/tides", "anna/digits-with… ·0a4f"]],
  ["gantt", 400, []],
  ["stacked", 800, []],
] as const)("labels of %s, %s px wide, have what tells jobs apart", (look, width, labels) => {
  expect(labelsOf(look, width)).toEqual(labels);
});

it("lines stand at their true heights, also equal ones, which take turns", () => {
  const items = Array.from({ length: 8 }, (_, place) => ({ ...short, key: `j-${place}`, slots: [place < 2 ? 2 : 1] }));
  const container = draw("lines", 800, items);
  const tick = (num: number) =>
    [...container.querySelectorAll<SVGGElement>(".timeline-axis g")]
      .find((group) => group.textContent === String(num))
      ?.getAttribute("transform")
      ?.match(/ ([\d.]+)\)/)?.[1];
  const [none, all] = [Number(tick(0)), Number(tick(8))];
  const lines = [...container.querySelectorAll(".timeline-line")].filter((path) => path.getAttribute("d"));
  expect(lines).toHaveLength(8);
  expect(lines.map((path) => Number(path.getAttribute("d")?.match(/M[\d.]+ ([\d.]+)H/)?.[1]))).toEqual(
    items.map(({ slots }) => none + ((all - none) * (slots[0] as number)) / 8),
  );
  expect(lines.slice(0, 2).map((path) => path.getAttribute("stroke-dasharray"))).toEqual(["9 9", "9 9"]);
  expect(new Set(lines.slice(2).map((path) => path.getAttribute("stroke-dashoffset"))).size).toBe(6);
});

it("a mark is on the dashes of its own job only, and under no number", () => {
  const items = Array.from({ length: 26 }, (_, place) => ({
    ...short,
    key: `k-${place}`,
    slots: [[0, 12, 24].includes(place) ? 2 : place + 5],
  }));
  keepApart(items.map(({ key }) => key));
  const groups = [...draw("lines", 800, items).querySelectorAll(".timeline-line")].filter((path) =>
    path.getAttribute("stroke-dasharray"),
  );
  const cores = groups.map((path) => [path.nextElementSibling].find((next) => next?.matches(".timeline-core")));
  expect(groups.map((path) => path.getAttribute("stroke-dashoffset"))).toEqual(["0", "-9", "-18"]);
  expect(cores.map((core) => core?.getAttribute("stroke-dasharray"))).toEqual([undefined, "1.5 25.5", "9 18"]);
  expect(cores.map((core) => core?.getAttribute("d")).slice(1)).toEqual(
    groups.slice(1).map((path) => path.getAttribute("d")),
  );
  cleanup();
  const numbers = [...draw("gantt", 800, items).querySelectorAll<SVGTextElement>(".timeline-number")];
  expect(numbers.length).toBe(26);
  expect(numbers.every((number) => number.style.stroke.startsWith("var(--job-"))).toBe(true);
});
