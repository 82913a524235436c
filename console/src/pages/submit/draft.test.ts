import { describe, expect, it } from "vitest";
import type { Definition } from "@/pages/projects/project-data";
import { bodyOf, boundsOfDraft, checkDraft, type DefinitionDraft, draftOf, EMPTY_DRAFT, nextName } from "./draft";

const good: DefinitionDraft = {
  ...EMPTY_DRAFT,
  name: " digits ",
  command: "train.py --epochs 3",
  codeFrom: "directory",
  directory: "/data/code",
};

describe("a draft", () => {
  it("that is complete has no errors, and becomes a request", () => {
    expect(checkDraft(good)).toEqual({});
    const pairs = { parameters: [{ name: "--rate", value: "0.1" }], environment: [{ name: "A", value: "007" }] };
    expect(bodyOf({ ...good, ...pairs, maxRunMinutes: "1.5", seed: "7" })).toMatchObject({
      ...{ name: "digits", directory: "/data/code", code: null, distributed: "elastic", min_nodes: 1, max_nodes: 4 },
      ...{ parameters: { rate: 0.1 }, environment: { A: "007" }, max_run_s: 90, seed: 7, checkpoint_every: null },
      cpu_capability: null,
    });
  });

  it.each<[string, Partial<DefinitionDraft>]>([
    ["name", { name: " " }],
    ["command", { command: "" }],
    ["command", { command: "train.py 'open" }],
    ["code", { codeFrom: "upload" }],
    ["directory", { directory: "code" }],
    ["max_nodes", { maxNodes: "0" }],
    ["max_nodes", { maxNodes: "many", distributed: "static" }],
    ["min_nodes", { minNodes: "5" }],
    ["num_threads", { numThreads: "0.5" }],
    ["seed", { seed: "-1" }],
    ["max_run_s", { maxRunMinutes: "soon" }],
    [
      "parameters",
      {
        parameters: [
          { name: "a", value: "1" },
          { name: "a", value: "2" },
        ],
      },
    ],
    ["environment", { environment: [{ name: "", value: "1" }] }],
  ])("tells at %s what is wrong", (field, change) => {
    expect(Object.keys(checkDraft({ ...good, ...change }))).toEqual([field]);
  });

  it("has the bounds of its distributed training type", () => {
    expect(boundsOfDraft({ ...good, distributed: "single" })).toEqual({ min: 1, max: 1, isElastic: false });
    expect(boundsOfDraft({ ...good, distributed: "static" })).toEqual({ min: 4, max: 4, isElastic: false });
    expect(boundsOfDraft(good)).toEqual({ min: 1, max: 4, isElastic: true });
  });

  it("of a definition makes an equal definition", () => {
    const full = { ...good, seed: "3", maxRunMinutes: "2", cpuCapability: "avx2" };
    expect(bodyOf(full)).toMatchObject({ cpu_capability: "avx2" });
    const made = { ...bodyOf(full), id: "d-1", project: "p-1" } as unknown;
    expect(bodyOf(draftOf(made as Definition))).toEqual({ ...bodyOf(full), clone_of: "d-1" });
    const coded = { ...(made as Definition), code: "ab".repeat(32), directory: null };
    expect(bodyOf(draftOf(coded))).toMatchObject({ code: "ab".repeat(32), directory: null });
  });

  it("gets an unused name", () => {
    expect(nextName("digits", [])).toBe("digits");
    expect(nextName("digits", ["digits"])).toBe("digits 2");
    expect(nextName("digits 2", ["digits", "digits 2"])).toBe("digits 3");
  });
});
