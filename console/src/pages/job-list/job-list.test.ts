// @vitest-environment jsdom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Job } from "@/api/types";
import { makeJob, makeProgress } from "@/jobs/make-job";
import { fits, groupOf, readFilter, readSaved, writeSaved } from "./filter";
import { dropJob, type JobBook, keepSince, listJobs, putJobs } from "./job-book";

const read = (query: string) => readFilter(new URLSearchParams(query));

describe("the filter", () => {
  it("reads groups and stages", () => {
    expect(read("stage=ended").stages).toEqual(["succeeded", "failed", "stopped"]);
    expect(groupOf(read("stage=ended"))).toBe("ended");
    expect(groupOf(read(""))).toBe("all");
    expect(groupOf(read("stage=failed"))).toBeNull();
  });
  it.each([
    ["", true],
    ["stage=running", true],
    ["stage=waiting", false],
    ["owner=bob", false],
    ["owner=anna&queue=default", true],
    ["project=p-1", false],
    ["label=team=vision", true],
    ["label=team=", false],
    ["text=MNI", true],
    ["text=workers+train", true],
    ["text=nothing", false],
  ])("%s fits: %s", (query, want) => {
    expect(fits(read(query), makeJob({ labels: { team: "vision" } }))).toBe(want);
  });
  describe("saved", () => {
    beforeEach(() => localStorage.clear());
    it("comes back", () => {
      writeSaved([{ name: "mine", query: "owner=anna" }]);
      expect(readSaved()).toEqual([{ name: "mine", query: "owner=anna" }]);
    });
    it.each(["{", "null", '[1, {"name": 2}]', '{"a": 1}'])("%s is none", (kept) => {
      localStorage.setItem("legato-runs-filters", kept);
      expect(readSaved()).toEqual([]);
    });
  });
});

describe("the book of jobs", () => {
  const put = (book: JobBook, job: Job, asked_ms = 10) => putJobs(book, [job], asked_ms);
  const book = putJobs(new Map(), [makeJob({ id: "j-1", version: 3 }), makeJob({ id: "j-2", submitted_at: 950 })], 10);
  it("lists newest first", () => {
    expect(listJobs(book).map((job) => job.id)).toEqual(["j-2", "j-1"]);
  });
  it("takes no answer that is older than what it knows", () => {
    expect(put(book, makeJob({ id: "j-1", version: 2, stage: "queued" }))).toBe(book);
    expect(put(book, makeJob({ id: "j-1", version: 3, progress: makeProgress({ time: 5 }) }))).toBe(book);
    expect(put(book, makeJob({ id: "j-1", version: 3, num_slots: 4 }), 9)).toBe(book);
  });
  it("takes what is newer, by version, by progress, or by when slots were asked for", () => {
    const changes = [
      makeJob({ id: "j-1", version: 4, progress: null }),
      makeJob({ id: "j-1", version: 3, progress: makeProgress({ time: 2000 }) }),
    ];
    for (const job of changes) expect(put(book, job, 9).get("j-1")?.job).toBe(job);
    const slots = makeJob({ id: "j-1", version: 3, num_slots: 4 });
    expect(put(book, slots, 11).get("j-1")?.job).toBe(slots);
  });
  it("stays the same book while nothing changes, so that nothing is drawn", () => {
    expect(put(book, makeJob({ id: "j-1", version: 3 }), 11)).toBe(book);
    expect(dropJob(book, "j-9")).toBe(book);
    expect(dropJob(book, "j-1").size).toBe(1);
  });
  it("treats an unchanged job as confirmed: an answer to an earlier request is older", () => {
    const known = put(new Map(), makeJob({ version: 3 }), 10);
    put(known, makeJob({ version: 3 }), 20);
    expect(put(known, makeJob({ version: 3, num_slots: 4 }), 15)).toBe(known);
    expect(keepSince(known, 20).size).toBe(1);
    expect(keepSince(known, 21).size).toBe(0);
  });
  it("does not look through jobs that an answer holds again", () => {
    const [one, again] = [makeJob(), makeJob()];
    const known = put(put(new Map(), one), again);
    const written = vi.spyOn(JSON, "stringify");
    for (const job of [again, one, again]) put(known, job);
    expect(written).not.toHaveBeenCalled();
    written.mockRestore();
  });
});
