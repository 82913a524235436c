import { describe, expect, it } from "vitest";
import { makeJob, makeSpec } from "@/jobs/make-job";
import { writePython, writeRest, writeShell, writeValue } from "./as-code";
import { compareFacts, findDifferences, listFacts } from "./diff";
import { mark } from "./logs/log-list";

describe("differences", () => {
  const before = listFacts(makeJob(), makeSpec({ environment: { A: "1" }, seed: 3 }));
  it("list changed, added and removed fields", () => {
    const after = listFacts(
      makeJob({ max_workers: 8, labels: { team: "vision" } }),
      makeSpec({ program: ["train.py", "--title", "a b"], seed: 3 }),
    );
    expect(findDifferences(before, after)).toEqual([
      { name: "Command", before: "train.py --epochs 20", after: "train.py --title 'a b'" },
      { name: "Maximum slots", before: "4", after: "8" },
      { name: "Label team", before: null, after: "vision" },
      { name: "Variable A", before: "1", after: null },
    ]);
  });
  it("are empty for equal jobs", () => {
    expect(findDifferences(before, before)).toEqual([]);
  });
  it("of several jobs have one value per job", () => {
    const [rate] = compareFacts([
      [{ name: "Parameter rate", value: "1" }],
      [{ name: "Parameter rate", value: "2" }],
      [],
    ]);
    expect(rate).toEqual({ name: "Parameter rate", values: ["1", "2", null], differs: true });
  });
  it("values that are not shown to all users are not shown as empty", () => {
    expect(listFacts(makeJob({ code: null }), makeSpec({ environment: { KEY: null } }))).toEqual(
      expect.arrayContaining([
        { name: "Code", value: "(not shown)" },
        { name: "Variable KEY", value: "(not shown)" },
      ]),
    );
  });
});

describe("as code", () => {
  const job = makeJob({ name: "o'brien", labels: { team: "a b" }, code: null });
  const spec = makeSpec({ parameters: { rate: 0.1, wide: true, quiet: false }, seed: 7, directory: "/srv/code" });
  it("the command line is quoted for a shell", () => {
    const told = writeShell(job, spec);
    expect(told).toContain(`--name 'o'"'"'brien' --workers 1..4`);
    expect(told).toContain("--seed 7");
    expect(told).toContain("--label 'team=a b'");
    expect(told).toContain("--parameter rate=0.1 --parameter wide=true --parameter quiet=false");
    expect(told).toContain("train.py -- --epochs 20\n");
    expect(told).toContain("legato clone j-1");
  });
  it("a static job has --static", () => {
    expect(writeShell(makeJob({ is_elastic: false }), makeSpec())).toContain("--workers 4 --static");
  });
  it("the command of another framework is unchanged", () => {
    const told = writeShell(makeJob(), makeSpec({ framework: "command", program: ["bash", "my train.sh", "-x"] }));
    expect(told).toContain("--framework command bash 'my train.sh' -x\n");
  });
  it("a text that looks like a number or a boolean stays a text", () => {
    const told = writeShell(makeJob(), makeSpec({ parameters: { title: "a b", tag: "007", on: "true" } }));
    expect(told).toContain("--parameter 'title=a b' train.py -- --epochs 20 --tag 007 --on true\n");
  });
  it("a request is JSON with the fields that differ from the defaults", () => {
    const body = writeRest(makeJob(), makeSpec(), "https://legato.example").match(/--data '([^']*)'/)?.[1];
    expect(JSON.parse(body ?? "")).toEqual({
      name: "mnist",
      program: ["train.py", "--epochs", "20"],
      code: "a".repeat(64),
      max_workers: 4,
      priority: 5000,
    });
  });
  it("values are written as in Python", () => {
    const told = writePython(job, spec, "https://legato.example");
    expect(told).toContain('client.submit(\n    "train.py", "--epochs", "20",');
    expect(told).toContain('parameters={"rate": 0.1, "wide": True, "quiet": False}');
    expect(writeValue(null)).toBe("None");
    expect(writeValue('a"b\n')).toBe('"a\\"b\\n"');
  });
});

it("matches are marked, also across colours", () => {
  const pieces = [
    { text: "an Err", look: "" },
    { text: "or and error", look: "ansi-red" },
  ];
  expect(mark(pieces, "error")).toEqual([
    { text: "an ", look: "", isMarked: false },
    { text: "Err", look: "", isMarked: true },
    { text: "or", look: "ansi-red", isMarked: true },
    { text: " and ", look: "ansi-red", isMarked: false },
    { text: "error", look: "ansi-red", isMarked: true },
  ]);
});
