// Ends with 1 if what a browser loads before it shows the first page is more than it may be.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const MAX_KB = 120;
const pages = fileURLToPath(new URL("../../src/legato/server/pages", import.meta.url));
const index = readFileSync(`${pages}/index.html`, "utf8");
const first = [...index.matchAll(/(?:src|href)="\.\/(assets\/[^"]+)"/g)].map((found) => found[1]);
const sizeOf = (path) => gzipSync(readFileSync(`${pages}/${path}`)).length / 1000;
const total = ["index.html", ...first].reduce((sum, path) => sum + sizeOf(path), 0);
const all = readdirSync(`${pages}/assets`).reduce((sum, name) => sum + sizeOf(`assets/${name}`), 0);
console.log(`First load ${total.toFixed(0)} kB of at most ${MAX_KB} kB, all pages ${all.toFixed(0)} kB (gzipped)`);
if (total > MAX_KB) process.exit(1);
