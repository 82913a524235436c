// @vitest-environment jsdom
import { expect, it } from "vitest";
import { readKey, takesText } from "./keys";

function press(key: string, others: object = {}) {
  return { key, ctrlKey: false, metaKey: false, altKey: false, defaultPrevented: false, ...others };
}

it("keys open what they promise, and leave what belongs to fields and the browser", () => {
  expect(readKey(press("/"), false)).toBe("search");
  expect(readKey(press("?"), false)).toBe("help");
  expect(readKey(press("k", { ctrlKey: true }), true)).toBe("find");
  expect(readKey(press("K", { metaKey: true }), false)).toBe("find");
  expect(readKey(press("/"), true)).toBe(null);
  expect(readKey(press("?"), true)).toBe(null);
  expect(readKey(press("k"), false)).toBe(null);
  expect(readKey(press("/", { ctrlKey: true }), false)).toBe(null);
  expect(readKey(press("k", { ctrlKey: true, altKey: true }), false)).toBe(null);
  expect(readKey(press("/", { defaultPrevented: true }), false)).toBe(null);
});

it("a field takes what is typed, a button does not", () => {
  document.body.innerHTML = "<input><input type=checkbox><select></select><button></button><p contenteditable></p>";
  const taken = [...document.body.children].map((element) => takesText(element));
  expect(taken).toEqual([true, false, true, false, true]);
  expect(takesText(null)).toBe(false);
});
