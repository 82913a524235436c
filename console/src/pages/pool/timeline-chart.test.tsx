// @vitest-environment jsdom
import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { type Look, TimelineChart } from "./timeline-chart";

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

const short = { key: "j-1", title: "anna/tides", isHidden: false, times: [0], slots: [2] };
const long = { ...short, key: "j-2", title: "anna/digits-with-all-the-augmentations ·0a4f" };

function labelsOf(look: Look, width: number): (string | undefined)[] {
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(width);
  const timeline = { since: 0, until: 60, num_slots: { times: [0], values: [4] }, items: [short, long] };
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
  return [...container.querySelectorAll(".timeline-name")].map((label) => {
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
