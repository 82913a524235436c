import { describe, expect, it } from "vitest";
import type { SlotState } from "./pool-data";
import { sayUse } from "./slot-map";

function slot(more: Partial<SlotState>): SlotState {
  const usual = { id: "b/0", node: "b", device: "cpu", is_free: true, job: null, attempt: null, since: null };
  const state = { release_asked_at: null, unusable_since: null, unusable_reason: null, gpu_type: null };
  return { ...usual, ...state, ...more } as SlotState;
}

describe("what is said of a machine", () => {
  const drained = { unusable_since: 1, unusable_reason: "anna drains its machine: a new disk", is_free: false };

  it("names the reason for which all of its slots cannot be used", () => {
    expect(sayUse([slot(drained), slot(drained)])).toBe("not used: anna drains its machine: a new disk");
    expect(sayUse([slot({ ...drained, job: "j-1" }), slot(drained)])).toBe(
      "1 of 2 in use; not used any more: anna drains its machine: a new disk",
    );
  });

  it("counts the slots in use otherwise", () => {
    expect(sayUse([slot({}), slot({ is_free: false, job: "j-1" })])).toBe("1 of 2 in use");
    expect(sayUse([slot(drained), slot({})])).toBe("0 of 2 in use");
  });
});
