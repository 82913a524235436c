import { describe, expect, it } from "vitest";
import { quoteWord, readValue, splitCommand, writeParameters } from "./command";

describe("a command line", () => {
  it.each([
    ["train.py --epochs 3", ["train.py", "--epochs", "3"]],
    ["  train.py   --name 'two words' ", ["train.py", "--name", "two words"]],
    ['a "b c"d e\\ f', ["a", "b cd", "e f"]],
    ['say "a \\"b\\" \\n" \'\\\'', ["say", 'a "b" \\n', "\\"]],
    ["empty '' \"\"", ["empty", "", ""]],
    ["$HOME *.py", ["$HOME", "*.py"]],
    ["", []],
  ])("%s", (line, words) => expect(splitCommand(line)).toEqual({ words, wrong: null }));

  it.each(["train.py 'open", 'train.py "open', "train.py \\"])("%s cannot be split", (line) =>
    expect(splitCommand(line).wrong).toMatch(/quote|backslash/),
  );

  it("reads back the quoted words", () => {
    const words = ["train.py", "two words", "it's", "", "$x", 'a"b', "\\"];
    expect(splitCommand(words.map(quoteWord).join(" ")).words).toEqual(words);
  });
});

describe("parameters", () => {
  it("are numbers or booleans if they look so, and text otherwise", () => {
    expect(["3", "-0.5", "1e-4", "true", "false"].map(readValue)).toEqual([3, -0.5, 1e-4, true, false]);
    expect(["007", "0x1f", "True", "", "adam", "1.", "1.0", "1e3", "12345678901234567890"].map(readValue)).toEqual([
      "007",
      "0x1f",
      "True",
      "",
      "adam",
      "1.",
      "1.0",
      "1e3",
      "12345678901234567890",
    ]);
  });

  it("are appended to the command as the server does", () => {
    const given = { epochs: 3, rate: 0.1, verbose: true, quiet: false, shift: -1, title: "a b" };
    expect(writeParameters(given)).toEqual([
      ...["--epochs", "3", "--rate", "0.1", "--verbose", "--shift=-1", "--title", "a b"],
    ]);
  });
});
