// @vitest-environment jsdom
import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { Job } from "@/api/types";
import { makeJob, makeProgress } from "@/jobs/make-job";
import { findCommonReasons } from "@/jobs/waiting";
import { makeColumns } from "./columns";

afterEach(cleanup);

const TELL = {
  lines: new Map(),
  numSlots: 4,
  projects: new Map([["p-1", "Digits"]]),
  positions: new Map([["j-1", "2 of 7"]]),
  common: new Map([["no slots", 3]]),
};

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

it("a waiting job shows its position in the queue, and its reason unless that stands above the table", () => {
  const waits = { id: "j-1", stage: "queued", num_slots: 0, queue: "night" } as const;
  expect(shown("stage", makeJob({ ...waits, decided_reason: "needs 4" }))).toContain("2 of 7 in queue night · needs 4");
  const told = shown("stage", makeJob({ ...waits, decided_reason: "no slots" }));
  expect(told).toContain("2 of 7 in queue night");
  expect(told).not.toContain("no slots");
  expect(shown("stage", makeJob({ ...waits, id: "j-9", decided_reason: "no slots" }))).toContain("see above");
});

it("reasons that many waiting jobs have are counted", () => {
  const jobs = ["a", "a", "b", "a", "b"].map((decided_reason) => makeJob({ stage: "queued", decided_reason }));
  const running = ["b", "b"].map((decided_reason) => makeJob({ stage: "running", decided_reason }));
  expect([...findCommonReasons([...jobs, ...running])]).toEqual([["a", 3]]);
});
