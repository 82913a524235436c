/** One door to the server: requests with the session's cookie, answers as they are typed in the OpenAPI, problems thrown. */

import { makeAway, Problem, readProblem } from "./problems";
import type { paths } from "./schema";

export const API = "/api/v1";

type Method = "get" | "post" | "put" | "patch" | "delete";
type Prefix = typeof API;

/** The paths of the API without their prefix, such as `/jobs/{job}`. */
export type Path = keyof paths extends infer P ? (P extends `${Prefix}${infer Rest}` ? Rest : never) : never;
type Operation<P extends Path, M extends Method> = `${Prefix}${P}` extends keyof paths
  ? paths[`${Prefix}${P}`][M]
  : never;
export type PathOf<M extends Method> = {
  [P in Path]: undefined extends Operation<P, M> ? never : P;
}[Path];

type Good<R> = R extends { 200: infer A } ? A : R extends { 201: infer A } ? A : never;
/** What a request answers. */
export type AnswerOf<P extends Path, M extends Method> =
  Operation<P, M> extends { responses: infer R }
    ? Good<R> extends { content: { "application/json": infer A } }
      ? A
      : undefined
    : never;
type QueryOf<P extends Path, M extends Method> =
  Operation<P, M> extends { parameters: { query?: infer Q } } ? (Q extends undefined ? never : Q) : never;
type BodyOf<P extends Path, M extends Method> =
  Operation<P, M> extends { requestBody?: { content: infer C } } ? C[keyof C] : never;

/** Values of a query; lists are given several times, null and undefined are left out. */
export type Query = Record<string, string | number | boolean | null | undefined | readonly (string | number)[]>;

export interface Asked<P extends Path, M extends Method> {
  /** For the names in braces. */
  path?: Record<string, string>;
  query?: [QueryOf<P, M>] extends [never] ? Query : NonNullable<QueryOf<P, M>>;
  body?: [BodyOf<P, M>] extends [never] ? unknown : Partial<BodyOf<P, M>>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Looks who is logged in by now; returns whether that is still the same user. */
type LookWho = () => Promise<boolean>;

const SESSION = `${API}/session`;
let csrf: string | null = null;
/** Grows with each session that begins or ends: what was asked in an earlier one tells nothing of this one. */
let numSessions = 0;
/** The session is over: nothing is asked until there is another one. */
let isShut = false;
let lookWho: LookWho | null = null;
const whenLoggedOut = new Set<() => void>();
const MAX_KEPT = 30;
/** Answers with a weak tag, by address: asked again, the server says whether there is another one. Only of this session. */
const kept = new Map<string, { tag: string; told: unknown }>();

/** Take the value that proves to the server that a change was asked for by this page; with it a session begins. */
export function setCsrf(value: string | null): void {
  csrf = value;
  numSessions += 1;
  isShut = false;
  kept.clear();
}

/** Call `told` whenever the server says that no user is logged in any more; return a function that stops that. */
export function onLoggedOut(told: () => void): () => void {
  whenLoggedOut.add(told);
  return () => whenLoggedOut.delete(told);
}

/** Call `look` when the server takes a change for one of a foreign page, as after a log-in in another tab; return how to stop that. */
export function onForeign(look: LookWho): () => void {
  lookWho = look;
  return () => {
    if (lookWho === look) lookWho = null;
  };
}

/** Ask nothing more, but for the session, until there is another one. */
export function shutDoor(): void {
  isShut = true;
}

/** Return the address of a request, with its names and its query filled in. */
export function makeAddress(path: string, names: Record<string, string> = {}, query: Query = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = names[name];
    if (value === undefined) throw new Error(`No value for ${name} in ${path}`);
    // Only what lies in a folder keeps its slashes: an id of the page's own address leads nowhere else.
    return name === "path" ? value.split("/").map(encodeURIComponent).join("/") : encodeURIComponent(value);
  });
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined) continue;
    for (const each of Array.isArray(value) ? value : [value]) pairs.append(name, String(each));
  }
  const told = pairs.toString();
  return `${API}${filled}${told ? `?${told}` : ""}`;
}

/**
 * Send a request and return its answer if it is a good one. Throws a Problem otherwise. A change that the server refused
 * because the same user has logged in again in another tab is sent once more.
 */
export async function send(method: string, address: string, init: RequestInit = {}): Promise<Response> {
  const isOfSession = address.startsWith(SESSION);
  if (isShut && !isOfSession) throw new Problem("unauthenticated", 401, "Your session has ended. Log in again.");
  const asked = numSessions;
  try {
    return await sendOnce(method, address, init);
  } catch (thrown) {
    if (!(thrown instanceof Problem) || isOfSession) throw thrown;
    if (thrown.status === 401 && asked === numSessions) {
      shutDoor();
      for (const told of whenLoggedOut) told();
    }
    if (thrown.kind !== "wrong-origin" || !lookWho) throw thrown;
    const isSame = await lookWho();
    if (isShut) throw thrown;
    if (!isSame) throw new Problem("wrong-origin", 403, OTHER_USER);
    if (asked === numSessions) throw thrown;
    return sendOnce(method, address, init);
  }
}

const OTHER_USER = "Nothing was changed, because another user has logged in with this browser in another tab.";

async function sendOnce(method: string, address: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (method !== "GET" && method !== "HEAD" && csrf !== null) headers.set("X-Legato-CSRF", csrf);
  let answer: Response;
  try {
    answer = await fetch(address, { ...init, method, headers, credentials: "same-origin", cache: "no-store" });
  } catch (thrown) {
    if (init.signal?.aborted) throw thrown;
    throw makeAway();
  }
  if (answer.ok || answer.status === 304) return answer;
  throw await readProblem(answer);
}

/** Ask the server as its OpenAPI says: `ask("get", "/jobs/{job}", { path: { job } })`. Throws a Problem. */
export async function ask<M extends Method, P extends PathOf<M>>(
  method: M,
  path: P,
  asked: Asked<P, M> = {},
): Promise<AnswerOf<P, M>> {
  const headers: Record<string, string> = { Accept: "application/json", ...asked.headers };
  const init: RequestInit = { headers };
  if (asked.signal) init.signal = asked.signal;
  if (asked.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(asked.body);
  }
  const address = makeAddress(path, asked.path, asked.query as Query);
  const known = method === "get" ? kept.get(address) : undefined;
  if (known) headers["If-None-Match"] = known.tag;
  const answer = await send(method.toUpperCase(), address, init);
  if (known && answer.status === 304) return known.told as AnswerOf<P, M>;
  const told: unknown = answer.status === 204 ? undefined : await answer.json();
  const tag = answer.headers.get("ETag");
  // A strong one is the version of a single thing, which does not change with its progress.
  if (method === "get" && tag?.startsWith("W/")) keep(address, tag, told);
  return told as AnswerOf<P, M>;
}

function keep(address: string, tag: string, told: unknown): void {
  kept.delete(address);
  kept.set(address, { tag, told });
  const [oldest] = kept.keys();
  if (kept.size > MAX_KEPT && oldest !== undefined) kept.delete(oldest);
}

/** Return a key under which the server makes a thing once, however often the request comes. */
export function makeKey(): string {
  // randomUUID is missing where a page comes over plain HTTP from another machine.
  const digits = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(digits, (digit) => digit.toString(16).padStart(2, "0")).join("");
}
