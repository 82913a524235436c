// @vitest-environment jsdom
import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { Job } from "@/api/types";
import { makeJob, makeProgress } from "@/jobs/make-job";
import { makeColumns } from "./columns";

afterEach(cleanup);

const TELL = { lines: new Map(), numSlots: 4, projects: new Map([["p-1", "Digits"]]) };

function shown(name: string, job: Job): string | null {
  const column = makeColumns(TELL, () => null).find((each) => each.name === name);
  return render(column?.show(job)).container.textContent;
}

it.each([
  ["p-1", "Digits"],
  ["p-9", "not visible"],
  [null, "–"],
])("a job of the project %s is said to be of: %s", (project, want) => {
  expect(shown("project", makeJob({ project }))).toBe(want);
});

it("a running job whose workers held different states is shown as not exact", () => {
  const progress = makeProgress({ differed_step: 40 });
  const told = "not exact since step 40: its workers held different states; 2 of up to 4 slots";
  expect(shown("stage", makeJob({ progress }))).toContain(told);
  const reason = "succeeded; not exact since step 40";
  expect(shown("stage", makeJob({ progress, stage: "succeeded", reason }))).toMatch(
    /not exact.*succeeded; not exact since step 40$/,
  );
  expect(shown("stage", makeJob())).not.toContain("not exact");
});

it("slots of a job that has ended are those that it could have had, not those that it had", () => {
  expect(shown("slots", makeJob())).toBe("2 of 4");
  expect(shown("slots", makeJob({ stage: "stopped", num_slots: 0 }))).toBe("1–4");
});
