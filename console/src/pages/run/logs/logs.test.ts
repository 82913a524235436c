import { describe, expect, it } from "vitest";
import { findLevel, readAnsi, stripAnsi } from "./ansi";
import { countBytes, filterLines, LogBook, MAX_LINES } from "./log-book";

describe("readAnsi", () => {
  it("HTML stays text", () => {
    expect(readAnsi("<b>x</b><script>alert(1)</script>")).toEqual([
      { text: "<b>x</b><script>alert(1)</script>", look: "" },
    ]);
  });
  it("reads colours and their end", () => {
    expect(readAnsi("\x1b[1;31mbad\x1b[0m good \x1b[92mgreen\x1b[39m")).toEqual([
      { text: "bad", look: "ansi-red ansi-bold" },
      { text: " good ", look: "" },
      { text: "green", look: "ansi-green" },
    ]);
  });
  it.each([
    ["\x1b[38;5;196mx", "x"],
    ["\x1b[38;2;255;0;31mx", "x"],
    ["\x1b[2J\x1b[1;1Hx", "x"],
    ["\x1b]0;title\x07x", "x"],
    ["\x1b]8;;javascript:alert(1)\x1b\\link\x1b]8;;\x1b\\", "link"],
    ["a\x00b\x08c\x9bd", "abcd"],
    ["x\x1b", "x"],
    ["x\x1b[3", "x[3"],
    [" 10 %\r 20 %\r", " 20 %"],
  ])("%j is shown as %j", (line, want) => {
    expect(stripAnsi(line)).toBe(want);
    expect(
      readAnsi(line)
        .map((piece) => piece.text)
        .join(""),
    ).toBe(want);
  });
  it("cuts what is shown, not what was written over", () => {
    const bar = "10 % of it\r".repeat(1000);
    expect(readAnsi(`${bar}99 % of it`, 4)).toEqual([{ text: "99 %", look: "" }]);
  });
  it("24 bits of colour are not taken for others", () => {
    expect(readAnsi("\x1b[38;2;31;32;33mx")).toEqual([{ text: "x", look: "" }]);
  });
});

it.each([
  ["ValueError: no", "error"],
  ["[ERROR] no", "error"],
  ["UserWarning: hm", "warning"],
  ["DEBUG x", "debug"],
  ["errors are rare in terrors", "info"],
  ["epoch 3", "info"],
] as const)("the level of %j is %s", (text, want) => {
  expect(findLevel(text)).toBe(want);
});

describe("LogBook", () => {
  it("joins parts, and knows where each line begins", () => {
    const book = new LogBook();
    book.add("worker-0", "one\ntw");
    book.add("worker-1", "other\n");
    book.add("worker-0", "o ü\n\nthree");
    expect(book.lines).toEqual([
      { log: "worker-0", text: "one", offset: 0 },
      { log: "worker-0", text: "two ü", offset: 4 },
      { log: "worker-1", text: "other", offset: 0 },
      { log: "worker-0", text: "", offset: 11 },
      { log: "worker-0", text: "three", offset: 12 },
    ]);
    expect(book.find("worker-0", 6)).toBe(1);
    expect(book.find("worker-0", 12)).toBe(4);
    expect(book.find("worker-9", 0)).toBe(-1);
  });
  it("knows no places of logs that were not read from their beginnings", () => {
    const book = new LogBook(false);
    book.add("worker-0", "one\n");
    expect(book.find("worker-0", 0)).toBe(-1);
  });
  it("lets the oldest go, and goes on in the line that is open", () => {
    const book = new LogBook();
    const many = "x\n".repeat(Math.ceil(MAX_LINES * 1.1));
    book.add("worker-0", `${many}last`);
    expect(book.lines).toHaveLength(MAX_LINES);
    book.add("worker-0", " line");
    expect(book.lines.at(-1)?.text).toBe("last line");
    expect(book.lines).toHaveLength(MAX_LINES);
  });
});

it("lines are found by log, level and text", () => {
  const book = new LogBook();
  book.add("worker-0", "epoch 1\n\x1b[31mERROR\x1b[0m no room\n");
  book.add("driver", "Epoch begins\n");
  const all = { logs: null, level: "debug", text: "", isOnlyText: false } as const;
  expect(filterLines(book.lines, all)).toEqual([0, 1, 2]);
  expect(filterLines(book.lines, { ...all, logs: new Set(["driver"]) })).toEqual([2]);
  expect(filterLines(book.lines, { ...all, level: "warning" })).toEqual([1]);
  expect(filterLines(book.lines, { ...all, text: "epoch", isOnlyText: true })).toEqual([0, 2]);
  expect(filterLines(book.lines, { ...all, text: "error no", isOnlyText: true })).toEqual([1]);
});

it("countBytes counts as UTF-8 does", () => {
  for (const text of ["", "abc", "ü", "€", "😀x", "a\u0000b"]) {
    expect(countBytes(text)).toBe(new TextEncoder().encode(text).length);
  }
});
