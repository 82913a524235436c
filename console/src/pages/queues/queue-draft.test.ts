import { describe, expect, it } from "vitest";
import type { QueueState } from "@/api/types";
import { bodyOfQueue, checkQueue, diffShares, draftOfQueue, NEW_QUEUE, withQueue } from "./queue-draft";

const loads = { num_slots: 0, num_holding: 0, num_queued: 0 };
const night: QueueState = { name: "night", weight: 1, floor: 0, ceiling: null, is_open: true, members: [], ...loads };
const share = (queue: string, fair: number | null) => ({
  ...{ queue, fair, weight: 1, floor: 0, ceiling: null, held: 0, borrowed: 0, wanted: 0 },
});

describe("a queue", () => {
  it("is sent unchanged if no field changes", () => {
    const queue = { ...night, weight: 2.5, floor: 1, ceiling: 3, is_open: false, members: ["anna", "ben"] };
    const { name, weight, floor, ceiling, is_open, members } = queue;
    expect(bodyOfQueue(draftOfQueue(queue))).toEqual({ name, weight, floor, ceiling, is_open, members });
  });

  it("is planned together with all other queues", () => {
    const wanted = withQueue([night, { ...night, name: "day" }], { ...draftOfQueue(night), weight: "3" });
    expect(wanted.map((queue) => [queue.name, queue.weight])).toEqual([
      ["day", 1],
      ["night", 3],
    ]);
    expect(withQueue([night], { ...NEW_QUEUE, name: "new" }).map((queue) => queue.name)).toEqual(["night", "new"]);
  });

  it.each([
    ["name", { name: "" }],
    ["name", { name: "two words" }],
    ["name", { name: "night" }],
    ["weight", { weight: "0" }],
    ["weight", { weight: "" }],
    ["floor", { floor: "1.5" }],
    ["ceiling", { floor: "3", ceiling: "2" }],
    ["ceiling", { ceiling: "many" }],
  ])("tells at %s what is wrong", (field, change) => {
    expect(Object.keys(checkQueue({ ...NEW_QUEUE, name: "new", ...change }, ["night"]))).toEqual([field]);
  });
});

describe("what would change", () => {
  it("lists the shares that change, and new ones", () => {
    const now = [share("night", 2), share("day", 2)];
    expect(diffShares(now, [share("night", 3), share("day", 2.001), share("new", 1)])).toEqual([
      { queue: "night", before: 2, after: 3 },
      { queue: "new", before: null, after: 1 },
    ]);
    expect(diffShares([share("night", null)], [share("night", null)])).toEqual([]);
  });
});
