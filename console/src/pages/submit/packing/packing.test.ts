import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { isLeftOut, looksPacked, pack } from "./pack";
import { hashBytes } from "./sha256";
import { makeZip } from "./zip";

const bytes = (text: string) => new TextEncoder().encode(text);
// jsdom's own File cannot be read as bytes.
const file = (text: string | Uint8Array) => {
  const content = typeof text === "string" ? bytes(text) : text;
  return { size: content.length, arrayBuffer: async () => content.slice().buffer } as unknown as Blob;
};

it.each([true, false])("SHA-256 is the standard one, with the browser's help: %s", async (hasHelp) => {
  if (!hasHelp) vi.stubGlobal("crypto", {});
  const content = Uint8Array.from({ length: 100_000 }, (_, place) => (place * 31) & 0xff);
  expect(await hashBytes(content)).toBe(createHash("sha256").update(content).digest("hex"));
});

describe("a zip", () => {
  it("is read by Python, with non-ASCII names and executable files", () => {
    const folder = mkdtempSync(join(tmpdir(), "legato-zip-"));
    try {
      const zip = makeZip([
        { name: "übung/läufer.py", content: bytes("print('grüße')\n") },
        { name: "run.sh", content: bytes("#!/bin/sh\ntrue\n") },
        { name: "empty", content: new Uint8Array() },
      ]);
      writeFileSync(join(folder, "code.zip"), zip);
      const program =
        "import zipfile, json, sys; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; " +
        "print(json.dumps([[i.filename, z.read(i).decode(), oct(i.external_attr >> 16)] for i in z.infolist()]))";
      const told = execFileSync("python3", ["-c", program, join(folder, "code.zip")], { encoding: "utf8" });
      expect(JSON.parse(told)).toEqual([
        ["empty", "", "0o100644"],
        ["run.sh", "#!/bin/sh\ntrue\n", "0o100755"],
        ["übung/läufer.py", "print('grüße')\n", "0o100644"],
      ]);
      expect(readFileSync(join(folder, "code.zip")).length).toBe(zip.length);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("does not depend on the order of the files", () => {
    const one = { name: "a.py", content: bytes("1") };
    const other = { name: "b.py", content: bytes("2") };
    expect(makeZip([one, other])).toEqual(makeZip([other, one]));
  });
});

describe("what was picked", () => {
  it("of a folder is packed without its top, and without files such as .git", async () => {
    const packed = await pack(
      [
        { path: "mnist/train.py", file: file("x") },
        { path: "mnist/lib/net.py", file: file("y") },
        { path: "mnist/__pycache__/train.cpython-311.pyc", file: file("z") },
        { path: "mnist/.git/config", file: file("z") },
      ],
      true,
    );
    expect(packed).toMatchObject({ title: "mnist", names: ["lib/net.py", "train.py"], numLeft: 2 });
    expect(packed.sha256).toBe(createHash("sha256").update(packed.bytes).digest("hex"));
  });

  it("that is an archive is sent unchanged", async () => {
    const zip = makeZip([{ name: "train.py", content: bytes("x") }]);
    const packed = await pack([{ path: "model.zip", file: file(zip) }]);
    expect(packed.bytes).toEqual(zip);
    expect(packed.names).toBeNull();
  });

  it("that is named like an archive, but is none, is refused", async () => {
    await expect(pack([{ path: "model.zip", file: file("<html>") }])).rejects.toThrow(/not a zip or tar/);
    await expect(pack([{ path: "model.zip", file: file("") }])).rejects.toThrow(/empty/);
    await expect(pack([{ path: "x/.git/config", file: file("") }], true)).rejects.toThrow(/no usable files/);
  });

  it("that was changed since is reported as such", async () => {
    const gone = { size: 1, arrayBuffer: () => Promise.reject(new Error("NotReadable")) } as unknown as Blob;
    await expect(pack([{ path: "train.py", file: gone }])).rejects.toThrow(/Select it again/);
  });

  it("excludes only such names", () => {
    expect(["a.pyc", "venv/x", "sub/.git/x", ".DS_Store"].every(isLeftOut)).toBe(true);
    expect(["train.py", "environment/x", "git/x", ".gitignore"].some(isLeftOut)).toBe(false);
    expect(looksPacked(bytes("PK\u0003\u0004"))).toBe(true);
    expect(looksPacked(Uint8Array.of(0x1f, 0x8b, 8))).toBe(true);
    expect(looksPacked(bytes("import torch"))).toBe(false);
  });
});
