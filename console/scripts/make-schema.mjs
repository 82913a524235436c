// Makes src/api/schema.ts from the server's own OpenAPI. With --check nothing is written: it ends with 1 if it is old.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const target = here("../src/api/schema.ts");
const python = process.env.PYTHON ?? [here("../../.venv/bin/python")].find(existsSync) ?? "python3";
const environment = { ...process.env, PYTHONPATH: here("../../src") };
const told = execFileSync(python, [here("write_openapi.py")], {
  env: environment,
  maxBuffer: 2 ** 26,
  encoding: "utf8",
});
const text = `// Made by "npm run schema". Do not edit.\n\n${astToString(await openapiTS(JSON.parse(told)))}`;
if (!process.argv.includes("--check")) {
  writeFileSync(target, text);
} else if (!existsSync(target) || readFileSync(target, "utf8") !== text) {
  console.error("console/src/api/schema.ts does not fit the server's OpenAPI. Run: npm run schema");
  process.exit(1);
}
