// @vitest-environment jsdom
import { strToU8, zipSync } from "fflate";
import { expect, it } from "vitest";
import { makeJob, makeSpec } from "@/jobs/make-job";
import { sayMissing } from "./code-card";
import { type Code, compareCode, unpack } from "./code-diff";
import { diffLines, type Hunk, splitLines } from "./line-diff";

const SIGNS = { same: " ", gone: "-", new: "+" };
const write = (hunk: Hunk) => hunk.lines.map(({ kind, text }) => SIGNS[kind] + text);

it("shows a changed line between three lines on each side, with its numbers", () => {
  const before = Array.from({ length: 20 }, (_, place) => `line ${place + 1}`);
  const after = before.with(9, "changed");
  const [hunk, ...more] = diffLines(before, after);
  expect(more).toEqual([]);
  expect([hunk?.before, hunk?.after]).toEqual([7, 7]);
  expect(write(hunk as Hunk)).toEqual([
    ...[" line 7", " line 8", " line 9", "-line 10", "+changed", " line 11", " line 12", " line 13"],
  ]);
});

it("joins differences that are near each other, and keeps others apart", () => {
  const before = Array.from({ length: 40 }, (_, place) => `${place}`);
  const near = before.with(5, "a").with(11, "b");
  expect(diffLines(before, near)).toHaveLength(1);
  expect(diffLines(before, before.with(5, "a").with(30, "b"))).toHaveLength(2);
  expect(diffLines(before, before)).toEqual([]);
});

it("both texts come back from their differences, and no shorter way is missed", () => {
  let seed = 7;
  const draw = (most: number) => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    return seed % most;
  };
  for (let round = 0; round < 300; round += 1) {
    const make = () => Array.from({ length: draw(12) }, () => "abc"[draw(3)] as string);
    const [before, after] = [make(), make()];
    const lines = diffLines(before, after).flatMap((hunk) => hunk.lines);
    if (before.join() === after.join()) continue;
    const common = longest(before, after);
    const numEdits = lines.filter((line) => line.kind !== "same").length;
    expect(numEdits).toBe(before.length + after.length - 2 * common);
    // With so few lines at most the ends are left out.
    const old = lines.filter((line) => line.kind !== "new").map((line) => line.text);
    expect(before.join("")).toContain(old.join(""));
    const now = lines.filter((line) => line.kind !== "gone").map((line) => line.text);
    expect(after.join("")).toContain(now.join(""));
  }
});

function longest(one: readonly string[], other: readonly string[]): number {
  const table = [new Array<number>(other.length + 1).fill(0)];
  one.forEach((line, x) => {
    const row = [0];
    other.forEach((text, y) => {
      const before = table[x] as number[];
      row.push(line === text ? (before[y] as number) + 1 : Math.max(before[y + 1] as number, row[y] as number));
    });
    table.push(row);
  });
  return table[one.length]?.[other.length] ?? 0;
}

it("texts without a common line are replaced, also long ones", () => {
  const [before, after] = [1, 2].map((which) => Array.from({ length: 3000 }, (_, place) => `${which} ${place}`));
  const [hunk] = diffLines(before as string[], after as string[]);
  expect(hunk?.lines).toHaveLength(6000);
});

it("a newline at the end is no line, and an empty text has none", () => {
  expect(splitLines("a\r\nb\n")).toEqual(["a", "b"]);
  expect(splitLines("")).toEqual([]);
});

it("compares programs file by file", () => {
  const big = new Uint8Array(2 ** 20 + 1);
  const pack = (files: Record<string, Uint8Array>) => unpack(zipSync(files));
  const before = pack({
    "train.py": strToU8("lr = 0.1\nrun()\n"),
    "old.py": strToU8("x\n"),
    "same.py": strToU8("y\n"),
    "ends.py": strToU8("y\n"),
    "model.bin": new Uint8Array([0, 1]),
    "data/big": big,
    "data/same": big,
  });
  const after = pack({
    "train.py": strToU8("lr = 0.2\nrun()\n"),
    "new.py": strToU8("z\n"),
    "same.py": strToU8("y\n"),
    "ends.py": strToU8("y\r\n"),
    "model.bin": new Uint8Array([0, 2]),
    "data/big": big.with(9, 1),
    "data/same": big,
    "empty.py": strToU8(""),
  });
  const found = compareCode(before, after);
  expect(found.map(({ path, kind, note }) => [path, kind, note])).toEqual([
    ["data/big", "changed", "Larger than 1 MiB, so its lines are not shown."],
    ["empty.py", "added", "Empty file."],
    ["ends.py", "changed", "Only line ends differ."],
    ["model.bin", "changed", "Not a text file."],
    ["new.py", "added", undefined],
    ["old.py", "removed", undefined],
    ["train.py", "changed", undefined],
  ]);
  expect(found.at(-1)?.hunks.map(write)).toEqual([["-lr = 0.1", "+lr = 0.2", " run()"]]);
});

it("names a byte order mark, which no line shows", () => {
  const compare = (before: string, after: string) => {
    const [old, now] = [before, after].map((text) => new Map([["a.py", strToU8(text)]]));
    return compareCode(old as Code, now as Code).map(({ note, hunks }) => [note, hunks.length]);
  };
  expect(compare("x\n", "\ufeffx\n")).toEqual([["Only the byte order mark (BOM) at the beginning differs.", 0]]);
  expect(compare("\ufeffx\r\n", "x\n")).toEqual([
    ["Only the byte order mark (BOM) at the beginning and line ends differ.", 0],
  ]);
  expect(compare("x\n", "\ufeffy\n")).toEqual([["The byte order mark (BOM) at the beginning differs, too.", 1]]);
  expect(compare("\ufeffx\n", "\ufeffx\r\n")).toEqual([["Only line ends differ.", 0]]);
});

it("files beyond the limit are not unpacked, and do not count for those that follow", () => {
  const code = unpack(zipSync({ a: new Uint8Array(90), b: new Uint8Array(15), "c.py": strToU8("x\n") }), 100);
  expect([...code].map(([path, content]) => [path, typeof content === "number" ? content : "read"])).toEqual([
    ["a", "read"],
    ["b", 15],
    ["c.py", "read"],
  ]);
  const told = compareCode(
    code,
    new Map<string, number>([
      ["a", 1],
      ["b", 15],
      ["d", 7],
    ]),
  );
  expect(told.map(({ path, kind }) => [path, kind])).toEqual([
    ["a", "changed"],
    ["b", "not compared"],
    ["c.py", "removed"],
    ["d", "added"],
  ]);
});

it("shows no more lines than a browser can compare and draw at once", () => {
  const make = (word: string, num: number, numFiles: number) =>
    new Map(
      Array.from({ length: numFiles }, (_, file) => {
        const lines = Array.from({ length: num }, (_, place) => `${word} ${place}`);
        return [`${1000 + file}.py`, strToU8(lines.join("\n"))] as const;
      }),
    );
  const count = (num: number, numFiles: number) =>
    compareCode(make("a", num, numFiles), make("b", num, numFiles)).filter(({ hunks }) => hunks.length).length;
  expect(count(20_001, 1)).toBe(0);
  // Each file takes all 1500² / 2 steps.
  expect(count(3000, 20)).toBe(4);
  expect(count(200, 400)).toBeLessThan(150);
});

it("says why code cannot be compared", () => {
  const of = (job: object, spec: object, mayRead = true) =>
    sayMissing({ job: makeJob(job), spec: makeSpec(spec) }, mayRead);
  expect(of({}, {})).toBe(null);
  expect(of({ name: "digits" }, { directory: "/data/x" })).toContain("digits runs in a directory of the server");
  expect(of({ code: null, owner: "bob" }, {})).toContain("Ask bob to make a training definition");
  expect(of({ code: null }, {}, false)).toBe("Viewers cannot read code.");
});
