// @vitest-environment jsdom
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { Job } from "@/api/types";
import { makeJob, makeProgress } from "@/jobs/make-job";
import { findCommonReasons } from "@/jobs/waiting";
import { fitColumns, sortRows } from "@/parts/table";
import { readExtras } from "./chosen-columns";
import { makeColumns } from "./columns";

afterEach(cleanup);

const TELL = {
  lines: new Map(),
  numSlots: 4,
  projects: new Map([["p-1", "Digits"]]),
  positions: new Map([["j-1", "2 of 7"]]),
  common: new Map([["no slots", 3]]),
  extras: readExtras(["labels", "notes", "metric:acc", "metric:loss", "parameter:lr", "parameter:fast"]),
  values: new Map([
    [
      "j-1",
      { job: "j-1", parameters: { lr: 0.1, fast: true }, metrics: { acc: 0.98765, loss: null }, is_complete: true },
    ],
    ["j-2", { job: "j-2", parameters: { lr: 0.02 }, metrics: { acc: 0.5 }, is_complete: true }],
  ]),
  onNotes: (job: Job) => (job.owner === "anna" ? () => asked.push(job.id) : null),
};
const asked: string[] = [];

function findColumn(name: string) {
  return makeColumns(TELL, () => null).find((each) => each.name === name);
}

function sayExtra(name: string, job: Job): string | null {
  const column = makeColumns({ ...TELL, extras: readExtras([name]) }, () => null).find((each) => each.name === name);
  return render(column?.show(job)).container.textContent;
}

function shown(name: string, job: Job): string | null {
  return render(findColumn(name)?.show(job)).container.textContent;
}

it("added columns show and sort the last metrics, parameters, notes and labels of each job", () => {
  const job = makeJob({ labels: { team: "vision", b: "" }, notes: "lr too high" });
  const names = ["labels", "notes", "metric:acc", "metric:loss", "parameter:lr", "parameter:fast"];
  const told = ["b, team=vision", "lr too high", "0.9877", "not finite", "0.1", "true"];
  expect(names.map((name) => shown(name, job))).toEqual(told);
  expect(names.map((name) => shown(name, makeJob({ id: "j-9" })))).toEqual(["–", "–", "–", "–", "–", "–"]);
  // What every object has is no metric and no parameter.
  expect(["metric:constructor", "parameter:constructor"].map((name) => sayExtra(name, job))).toEqual(["–", "–"]);
  const rows = [makeJob({ id: "j-9" }), job, makeJob({ id: "j-2" })];
  const order = (by: string, isUp: boolean) =>
    sortRows(
      rows,
      makeColumns(TELL, () => null),
      { by, isUp },
    ).map(({ id }) => id);
  expect(order("metric:acc", true)).toEqual(["j-2", "j-1", "j-9"]);
  expect(order("metric:acc", false)).toEqual(["j-1", "j-2", "j-9"]);
  expect(order("parameter:lr", false)).toEqual(["j-1", "j-2", "j-9"]);
});

it("added columns stay where there is no room for others", () => {
  const kept = fitColumns(
    makeColumns(TELL, () => null),
    300,
  ).map(({ name }) => name);
  expect(kept).toEqual(expect.arrayContaining(["name", "stage", "metric:acc", "parameter:lr"]));
  expect(kept).not.toContain("owner");
});

it("notes are changed where they stand, by those who may", () => {
  render(findColumn("notes")?.show(makeJob({ name: "mnist" })));
  fireEvent.click(screen.getByRole("button", { name: "Edit notes of mnist" }));
  expect(asked).toEqual(["j-1"]);
  cleanup();
  render(findColumn("notes")?.show(makeJob({ owner: "bob", notes: "mine" })));
  expect(screen.queryByRole("button")).toBe(null);
});

it.each([
  ["p-1", "Digits"],
  ["p-9", "not visible"],
  [null, "–"],
])("a job of the project %s is said to be of: %s", (project, want) => {
  expect(shown("project", makeJob({ project }))).toBe(want);
});

it("a running job whose result depends on the workers is shown as not exact", () => {
  const progress = makeProgress({ differed_step: 40 });
  const told = "not exact since step 40: its result depends on the workers; 2 of up to 4 slots";
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
