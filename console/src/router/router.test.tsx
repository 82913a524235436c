// @vitest-environment jsdom
import { act, renderHook } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { makeHash, matchPath, readRoute, useQueryValue, useRoute } from "./router";

describe("readRoute", () => {
  it.each([
    ["", "/"],
    ["#/", "/"],
    ["#/jobs/", "/jobs"],
    ["#jobs", "/jobs"],
    ["#//jobs//j-1", "/jobs/j-1"],
  ])("%s is %s", (hash, want) => {
    expect(readRoute(hash).path).toBe(want);
  });
  it("reads a query, with question marks in its values", () => {
    const { query } = readRoute("#/jobs?stage=running&stage=queued&name=why?");
    expect(query.getAll("stage")).toEqual(["running", "queued"]);
    expect(query.get("name")).toBe("why?");
  });
});

it("makeHash omits names without a value, and readRoute reads it back", () => {
  const hash = makeHash("/jobs", { stage: ["running", "queued"], owner: "", name: "a&b=c", queue: null });
  expect(readRoute(hash).query.toString()).toBe("stage=running&stage=queued&name=a%26b%3Dc");
});

describe("matchPath", () => {
  it("returns the names", () => {
    expect(matchPath("/jobs/:job", "/jobs/j-1")).toEqual({ job: "j-1" });
    expect(matchPath("/projects/:project", "/projects/my%20own")).toEqual({ project: "my own" });
  });
  it("returns null for other paths, and for one that cannot be decoded", () => {
    expect(matchPath("/jobs/:job", "/jobs")).toBeNull();
    expect(matchPath("/jobs", "/pool")).toBeNull();
    expect(matchPath("/jobs/:job", "/jobs/%E0%A4%A")).toBeNull();
  });
});

describe("in a page", () => {
  beforeEach(() => {
    window.location.hash = "#/jobs?stage=running";
  });
  it("useQueryValue changes the address without a new history entry", () => {
    const { result } = renderHook(() => ({ route: useRoute(), value: useQueryValue("owner") }));
    const steps = window.history.length;
    act(() => result.current.value[1]("anna"));
    expect(result.current.value[0]).toBe("anna");
    expect(window.location.hash).toBe("#/jobs?stage=running&owner=anna");
    expect(window.history.length).toBe(steps);
    act(() => result.current.value[1](null));
    expect(window.location.hash).toBe("#/jobs?stage=running");
  });
});
