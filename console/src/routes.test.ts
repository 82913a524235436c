import { expect, it } from "vitest";
import { makeHash, readRoute } from "@/router/router";
import { findPresent } from "./routes";

it.each([
  ["#/", "#/jobs"],
  ["#/runs", "#/jobs"],
  ["#/runs?stage=queued&owner=ann", "#/jobs?stage=queued&owner=ann"],
  ["#/runs/j-1?tab=logs", "#/jobs/j-1?tab=logs"],
  ["#/compare?run=j-1&run=j-2&axis=time", "#/compare?job=j-1&job=j-2&axis=time"],
])("%s, a former address, leads to %s", (former, want) => {
  const present = findPresent(readRoute(former));
  expect(present && makeHash(present.path, present.query)).toBe(want);
});

it.each(["#/jobs/j-1", "#/compare?job=j-1", "#/pool", "#/runs-of-others"])("%s is a present address", (hash) => {
  expect(findPresent(readRoute(hash))).toBeNull();
});
