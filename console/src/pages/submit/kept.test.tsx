// @vitest-environment jsdom
import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

interface Draft {
  name: string;
  files: string | null;
}

const empty = (): Draft => ({ name: "", files: null });

afterEach(cleanup);
beforeEach(() => sessionStorage.clear());

/** The module as it is after a reload of the tab. */
async function load() {
  vi.resetModules();
  return await import("./kept");
}

async function open() {
  const module = await load();
  const { result } = renderHook(() => module.useKept("experiment anna", empty, ["files"]));
  return { module, result };
}

it("input survives a reload of the tab, except files, for which the page asks first", async () => {
  const { module, result } = await open();
  act(() => result.current[1]({ name: "tides" }));
  expect(module.wouldLose()).toBe(false);
  act(() => result.current[1]({ files: "a picked zip" }));
  expect(module.wouldLose()).toBe(true);
  const leaving = new Event("beforeunload", { cancelable: true });
  window.dispatchEvent(leaving);
  expect(leaving.defaultPrevented).toBe(true);
  expect((await open()).result.current[0]).toEqual({ name: "tides", files: null });
});

it("a draft is deleted when it is submitted, and when the user logs out", async () => {
  const { result } = await open();
  act(() => result.current[1]({ name: "tides" }));
  act(() => result.current[2]());
  const again = await open();
  expect(again.result.current[0]).toEqual(empty());
  act(() => again.result.current[1]({ name: "tides" }));
  again.module.forgetAll();
  expect((await open()).result.current[0]).toEqual(empty());
});

it("a log-out removes drafts from before a reload of the tab, on every page", async () => {
  const { result } = await open();
  act(() => result.current[1]({ name: "tides" }));
  sessionStorage.setItem("of another page", "1");
  (await load()).forgetAll();
  expect(Object.keys(sessionStorage)).toEqual(["of another page"]);
});

it("a late change of a submitted draft starts a complete new draft", async () => {
  const { module, result } = await open();
  const [, change, forget] = result.current;
  act(() => change({ name: "tides" }));
  cleanup();
  forget();
  change({ files: "a picked zip" });
  const { result: again } = renderHook(() => module.useKept("experiment anna", empty, ["files"]));
  expect(again.current[0]).toEqual({ name: "", files: "a picked zip" });
});

it("a draft that cannot be read is ignored", async () => {
  sessionStorage.setItem("legato-draft experiment anna", "{half");
  expect((await open()).result.current[0]).toEqual(empty());
});
