import { afterEach, expect, it, vi } from "vitest";
import { PIECE_BYTES, readWhole } from "./download";

afterEach(() => vi.unstubAllGlobals());

it("a log of several pieces is read completely", async () => {
  const log = "x".repeat(2 * PIECE_BYTES + 5);
  const asked: number[] = [];
  vi.stubGlobal("fetch", async (address: string) => {
    const query = new URLSearchParams(address.split("?")[1]);
    const offset = Number(query.get("offset"));
    asked.push(offset);
    // The first piece ends before a letter that it would cut.
    const end = offset + Number(query.get("max_bytes")) - (offset === 0 ? 3 : 0);
    return new Response(log.slice(offset, end));
  });
  expect((await readWhole("j-1", "worker-0")).size).toBe(log.length);
  expect(asked).toEqual([0, PIECE_BYTES - 3, 2 * PIECE_BYTES - 3]);
});
