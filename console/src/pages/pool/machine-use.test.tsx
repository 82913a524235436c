// @vitest-environment jsdom
import { expect, it } from "vitest";
import type { NodeState } from "./machine";
import { sayUse } from "./machine-use";

const GIB = 2 ** 30;
const gpu = { device: "GPU-a", name: "H100", slots: [0], memory_bytes: GIB, total_bytes: 80 * GIB };
const node = {
  ...{ name: "a", num_slots: 1, num_usable: 1, num_free: 1, kind: null, traits: {}, labels: {}, gpu_types: {} },
  ...{ agent: null, address: null, metrics: null },
} satisfies NodeState;
const metrics = { cpus: 3.25, num_cpus: 16, memory_bytes: GIB, total_bytes: 64 * GIB, gpus: [] };

it("a machine says what its programs use, as far as it is measured", () => {
  expect(sayUse(node)).toBe("");
  expect(sayUse({ ...node, metrics })).toBe("CPU 3.3 of 16 · Memory 1 GiB of 64 GiB");
  const gpus = [
    { ...gpu, busy: 0.25 },
    { ...gpu, busy: null },
  ];
  expect(sayUse({ ...node, metrics: { ...metrics, gpus } })).toMatch(
    / · GPUs 25.? ?% busy · GPU memory 2 GiB of 160 GiB$/,
  );
});
