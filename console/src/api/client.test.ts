import { afterEach, describe, expect, it, vi } from "vitest";
import { ask, makeAddress, onLoggedOut, send, setCsrf } from "./client";
import { type Problem, sayProblem } from "./problems";

function answer(status: number, body: unknown, type = "application/problem+json"): Response {
  return new Response(typeof body === "string" ? body : JSON.stringify(body), {
    status,
    headers: { "Content-Type": type, "X-Request-Id": "r-1" },
  });
}

function serve(...answers: Response[]) {
  const fetched = vi.fn(async (_address: string, _init: RequestInit) => answers.shift() as Response);
  vi.stubGlobal("fetch", fetched);
  return fetched;
}

afterEach(() => setCsrf(null));

describe("makeAddress", () => {
  it("fills in names and keeps slashes in file paths", () => {
    expect(makeAddress("/jobs/{job}/files/{path}", { job: "a b", path: "work/a?.txt" })).toBe(
      "/api/v1/jobs/a%20b/files/work/a%3F.txt",
    );
  });
  it("escapes ids, so that none leads to another address", () => {
    expect(makeAddress("/projects/{project}", { project: "../tokens/t-1" })).toBe("/api/v1/projects/..%2Ftokens%2Ft-1");
  });
  it("repeats the name for each item of a list and omits missing values", () => {
    expect(makeAddress("/jobs", {}, { stage: ["running", "queued"], owner: null, limit: 5 })).toBe(
      "/api/v1/jobs?stage=running&stage=queued&limit=5",
    );
  });
  it("refuses a missing name", () => {
    expect(() => makeAddress("/jobs/{job}")).toThrow("No value for job");
  });
});

describe("requests", () => {
  it("changes send the CSRF value, reads do not", async () => {
    const fetched = serve(answer(200, {}, "application/json"), answer(200, {}, "application/json"));
    setCsrf("secret");
    await ask("get", "/pool");
    await ask("post", "/jobs/{job}/pause", { path: { job: "j-1" } });
    const headers = fetched.mock.calls.map(([, init]) => new Headers(init.headers).get("X-Legato-CSRF"));
    expect(headers).toEqual([null, "secret"]);
  });

  it("a problem has the server's message", async () => {
    serve(answer(409, { type: "urn:legato:problem:conflict", detail: "Cannot pause job 'm': it is paused." }));
    const problem = (await send("POST", "/x").catch((thrown) => thrown)) as Problem;
    expect(problem).toMatchObject({ kind: "conflict", status: 409, requestId: "r-1" });
    expect(sayProblem(problem)).toBe("Cannot pause job 'm': it is paused.");
  });

  it("fields that the message does not name are added", async () => {
    const errors = [{ field: "body.max_workers", message: "Input should be a valid integer" }];
    serve(answer(422, { type: "urn:legato:problem:invalid", detail: "Cannot read it.", errors }));
    const problem = await send("POST", "/x").catch((thrown) => thrown);
    expect(sayProblem(problem)).toBe("Cannot read it. max_workers: Input should be a valid integer");
  });

  it("a proxy's error page and a lost connection mean that the server is away", async () => {
    serve(answer(502, "<h1>Bad gateway</h1>", "text/html"));
    expect(await send("GET", "/x").catch((thrown) => thrown)).toMatchObject({ kind: "away" });
    vi.stubGlobal("fetch", async () => Promise.reject(new TypeError("Failed to fetch")));
    expect(await send("GET", "/x").catch((thrown) => thrown)).toMatchObject({ kind: "away" });
  });

  it("401 means that no user is logged in", async () => {
    const told = vi.fn();
    const stop = onLoggedOut(told);
    serve(answer(401, { type: "urn:legato:problem:unauthenticated", detail: "No." }));
    await send("GET", "/api/v1/jobs").catch(() => {});
    stop();
    expect(told).toHaveBeenCalledOnce();
  });
});

describe("answers with a weak tag", () => {
  const tagged = (tag: string, body: unknown) =>
    new Response(JSON.stringify(body), { headers: { "Content-Type": "application/json", ETag: tag } });
  const unchanged = () => new Response(null, { status: 304 });
  const askJobs = (limit: number) => ask("get", "/jobs", { query: { limit } });
  const shownIn = (call: unknown[]) => new Headers((call[1] as RequestInit).headers).get("If-None-Match");

  it("are cached until the server has another one", async () => {
    const fetched = serve(tagged('W/"1"', { items: [] }), unchanged(), tagged('W/"2"', { items: [1] }), unchanged());
    const first = await askJobs(5);
    expect(await askJobs(5)).toBe(first);
    expect(await askJobs(5)).toEqual({ items: [1] });
    expect(await askJobs(5)).toEqual({ items: [1] });
    expect(fetched.mock.calls.map(shownIn)).toEqual([null, 'W/"1"', 'W/"1"', 'W/"2"']);
  });
  it("are cached per address and session; answers with strong tags are not", async () => {
    const fetched = serve(
      ...[tagged('W/"1"', {}), tagged('W/"2"', {}), tagged('W/"3"', {}), tagged('"7"', {}), tagged('"7"', {})],
    );
    await askJobs(5);
    await askJobs(6);
    setCsrf("c-2");
    await askJobs(5);
    for (let time = 0; time < 2; time += 1) await ask("get", "/jobs/{job}", { path: { job: "j" } });
    expect(fetched.mock.calls.map(shownIn)).toEqual([null, null, null, null, null]);
  });
});
