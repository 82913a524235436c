// @vitest-environment jsdom
import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { makeJob } from "@/jobs/make-job";
import { makeColumns } from "./columns";

afterEach(cleanup);

it.each([
  ["p-1", "Digits"],
  ["p-9", "not visible"],
  [null, "–"],
])("a run of the project %s is said to be of: %s", (project, want) => {
  const tell = { lines: new Map(), numSlots: 4, projects: new Map([["p-1", "Digits"]]) };
  const column = makeColumns(tell, () => null).find(({ name }) => name === "project");
  const { container } = render(column?.show(makeJob({ project })));
  expect(container.textContent).toBe(want);
});
