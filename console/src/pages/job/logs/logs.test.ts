import { afterEach, describe, expect, it, vi } from "vitest";
import { findLevel, readAnsi, stripAnsi } from "./ansi";
import { countBytes, FilteredLines, LogBook, type LogFilter, MAX_LINE_CHARS, MAX_LINES } from "./log-book";
import { sayCount } from "./logs-tab";

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
  it("cuts the shown text, and ignores text that was overwritten", () => {
    const bar = "10 % of it\r".repeat(1000);
    expect(readAnsi(`${bar}99 % of it`, 4)).toEqual([{ text: "99 %", look: "" }]);
  });
  it("24-bit colours are not read as other codes", () => {
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
  it("joins parts, and records where each line begins", () => {
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
  it("finds no line of a log that was not read from its beginning", () => {
    const book = new LogBook(false);
    book.add("worker-0", "one\n");
    expect(book.find("worker-0", 0)).toBe(-1);
  });
  it("keeps only the last text of a progress bar, however long it is", () => {
    const book = new LogBook();
    for (let step = 0; step < 2000; step += 1) book.add("worker-0", `\rstep ${step} of it`);
    expect(book.lines).toEqual([{ log: "worker-0", text: "step 1999 of it", offset: 0 }]);
    book.add("worker-0", "\r");
    book.add("worker-0", "done ü\r\nnext");
    const numBytes = new TextEncoder().encode(
      `${Array.from({ length: 2000 }, (_, step) => `\rstep ${step} of it`).join("")}\rdone ü\r\n`,
    ).length;
    expect(book.lines).toEqual([
      { log: "worker-0", text: "done ü\r", offset: 0 },
      { log: "worker-0", text: "next", offset: numBytes },
    ]);
  });
  it("keeps the beginning of a line that does not end", () => {
    const book = new LogBook();
    for (let part = 0; part < 20; part += 1) book.add("worker-0", "x".repeat(MAX_LINE_CHARS / 10));
    expect(book.lines[0]?.text).toHaveLength(MAX_LINE_CHARS);
    book.add("worker-0", "\nnext");
    expect(book.lines[1]?.offset).toBe(2 * MAX_LINE_CHARS + 1);
  });
  it("drops the oldest lines, and continues the open line", () => {
    const book = new LogBook();
    const many = "x\n".repeat(Math.ceil(MAX_LINES * 1.1));
    book.add("worker-0", `${many}last`);
    expect(book.lines).toHaveLength(MAX_LINES);
    book.add("worker-0", " line");
    expect(book.lines.at(-1)?.text).toBe("last line");
    expect(book.lines).toHaveLength(MAX_LINES);
  });
});

describe("FilteredLines", () => {
  const all = { logs: null, level: "debug", text: "", isOnlyText: false } as const;
  const make = (filter: Partial<LogFilter>) => {
    const book = new LogBook();
    return { book, lines: new FilteredLines(book, { ...all, ...filter }) };
  };
  afterEach(() => vi.restoreAllMocks());

  it.each<[Partial<LogFilter>, number[]]>([
    [{}, [0, 1, 2]],
    [{ logs: new Set(["driver"]) }, [2]],
    [{ level: "warning" }, [1]],
    [{ text: "epoch", isOnlyText: true }, [0, 2]],
    [{ text: "error no", isOnlyText: true }, [1]],
  ])("%j finds lines %j", (filter, want) => {
    const { book, lines } = make(filter);
    book.add("worker-0", "epoch 1\n\x1b[31mERROR\x1b[0m no room\n");
    book.add("driver", "Epoch begins\n");
    expect(lines.read()).toEqual(want);
  });

  it("filters open lines again, and no others", () => {
    const { book, lines } = make({ level: "error", text: "e", isOnlyText: true });
    book.add("worker-0", "an err");
    book.add("worker-1", "Error: open\n".repeat(5000));
    book.add("worker-1", "Error: 10 %");
    expect(lines.read()).toHaveLength(5001);
    book.add("worker-0", "or comes\n");
    book.add("worker-1", "\rfine by now");
    const at = vi.spyOn(book, "at");
    const shown = lines.read();
    expect(at.mock.calls.length).toBeLessThan(10);
    expect([shown[0], shown.length]).toEqual([0, 5001]);
    expect(lines.read()).toBe(shown);
  });

  it("continues while the oldest lines are dropped: each line keeps its number", () => {
    const { book, lines } = make({ text: "odd", isOnlyText: true });
    const many = Math.ceil(MAX_LINES * 1.1);
    for (let number = 0; number < many - 1; number += 1) book.add("worker-0", number % 2 ? "odd\n" : "even\n");
    const before = lines.read();
    const one = before[before.length - 10] as number;
    expect(book.numGone).toBe(0);
    book.add("worker-0", "the last is odd\n");
    const after = lines.read();
    expect(book.numGone).toBe(many - MAX_LINES);
    expect(after.every((number) => book.at(number)?.text.includes("odd"))).toBe(true);
    expect(after.at(-1)).toBe(many - 1);
    expect(after).toContain(one);
    expect(after).toHaveLength(book.lines.filter((line) => line.text.includes("odd")).length);
    expect(book.find("worker-0", 0)).toBe(-1);
  });
});

it("countBytes counts as UTF-8 does", () => {
  for (const text of ["", "abc", "ü", "€", "😀x", "a\u0000b"]) {
    expect(countBytes(text)).toBe(new TextEncoder().encode(text).length);
  }
});

it("only lines of the shown logs are counted", () => {
  const book = new LogBook();
  book.add("driver", "a\n");
  book.add("worker-0", "b\nc\n");
  expect(book.countLines(new Set(["worker-0"]))).toBe(2);
  expect(book.countLines(new Set(["worker-0", "driver", "worker-7"]))).toBe(3);
});

it.each([
  [3, 10, true, "3 of 10 lines"],
  [10, 10, true, "10 of 10 lines"],
  [8306, 8306, false, "The newest 8 306 lines"],
  [3, 8306, false, "3 of the newest 8 306 lines"],
])("the count of lines of %d of %d (whole: %s) says what is known", (num, numRead, isWhole, told) => {
  expect(sayCount(num, numRead, isWhole).replaceAll("\u202f", " ").replaceAll("\u00a0", " ")).toBe(told);
});
