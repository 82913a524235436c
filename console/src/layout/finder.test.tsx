// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { useState } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { makeJob } from "@/jobs/make-job";
import { Keys } from "./finder";
import type { KeyAction } from "./keys";

const session = vi.hoisted(() => ({ role: "user" }));
vi.mock("@/session/session", () => ({ useSession: () => session }));

const JOBS = [makeJob({ id: "j-1", name: "digits" }), makeJob({ id: "j-2", name: "pooling" })];
let asked: string[] = [];

beforeEach(() => {
  asked = [];
  session.role = "user";
  window.location.hash = "#/jobs";
  vi.stubGlobal("fetch", async (input: RequestInfo | URL) => {
    const url = new URL(input instanceof Request ? input.url : String(input), "http://here");
    asked.push(url.search);
    const search = url.searchParams.get("search") ?? "";
    const items = JOBS.filter((job) => job.name.includes(search));
    return new Response(JSON.stringify({ items, next: null }), { headers: { "Content-Type": "application/json" } });
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function Page({ field }: { field: boolean }) {
  const [open, setOpen] = useState<KeyAction | null>(null);
  return (
    <>
      <Keys open={open} onOpen={setOpen} />
      <main>{field && <input type="search" aria-label="Search jobs" />}</main>
    </>
  );
}

function show(field = false) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <Page field={field} />
    </QueryClientProvider>,
  );
}

function shown(): string[] {
  return screen.queryAllByRole("option", { hidden: true }).map((each) => each.textContent ?? "");
}

it("Ctrl-K, a few letters and Enter open a job", async () => {
  show();
  fireEvent.keyDown(window, { key: "k", ctrlKey: true });
  const field = screen.getByRole("combobox", { hidden: true });
  await waitFor(() => expect(shown()).toHaveLength(2));
  fireEvent.change(field, { target: { value: "pool" } });
  await waitFor(() => expect(shown().map((text) => text.slice(0, 4))).toEqual(["Pool", "pool"]));
  expect(asked.at(-1)).toContain("search=pool");
  fireEvent.keyDown(field, { key: "ArrowDown" });
  expect(field.getAttribute("aria-activedescendant")).toBe(
    screen.getByRole("option", { hidden: true, selected: true }).id,
  );
  fireEvent.keyDown(field, { key: "Enter" });
  expect(window.location.hash).toBe("#/jobs/j-2");
  expect(screen.queryByRole("combobox", { hidden: true })).toBe(null);
});

it("Enter waits for the answer to the typed text, and opens nothing that does not fit it", async () => {
  show();
  fireEvent.keyDown(window, { key: "k", metaKey: true });
  await waitFor(() => expect(shown()).toHaveLength(2));
  const field = screen.getByRole("combobox", { hidden: true });
  fireEvent.change(field, { target: { value: "ooling" } });
  fireEvent.keyDown(field, { key: "Enter" });
  expect(window.location.hash).toBe("#/jobs");
  await waitFor(() => expect(window.location.hash).toBe("#/jobs/j-2"));
});

it("the chosen job stays chosen when another answer has it at another place", async () => {
  show();
  fireEvent.keyDown(window, { key: "k", ctrlKey: true });
  const field = screen.getByRole("combobox", { hidden: true });
  fireEvent.keyDown(field, { key: "ArrowDown" });
  await waitFor(() => expect(shown()).toHaveLength(2));
  fireEvent.change(field, { target: { value: "o" } });
  await waitFor(() => expect(shown().filter((text) => text.startsWith("digits"))).toHaveLength(0));
  fireEvent.keyDown(field, { key: "ArrowUp" });
  const chosen = () => screen.getByRole("option", { hidden: true, selected: true }).textContent;
  expect(chosen()).toContain("Jobs");
  for (let each = 1; each < shown().length; each++) fireEvent.keyDown(field, { key: "ArrowDown" });
  expect(chosen()).toContain("pooling");
  fireEvent.keyDown(field, { key: "Enter" });
  await waitFor(() => expect(window.location.hash).toBe("#/jobs/j-2"));
});

it("a slash goes to the search of the page, and to the finder where there is none", () => {
  show(true);
  fireEvent.keyDown(window, { key: "/" });
  expect(document.activeElement).toBe(screen.getByLabelText("Search jobs"));
  cleanup();
  show();
  fireEvent.keyDown(window, { key: "/" });
  expect(screen.getByRole("combobox", { hidden: true })).toBeTruthy();
});

it("a question mark shows the keys; a user finds only the pages that are for this user", async () => {
  show();
  fireEvent.keyDown(window, { key: "?" });
  expect(screen.getByText("Show these keys")).toBeTruthy();
  cleanup();
  session.role = "viewer";
  show();
  fireEvent.keyDown(window, { key: "k", ctrlKey: true });
  fireEvent.change(screen.getByRole("combobox", { hidden: true }), { target: { value: "e" } });
  await waitFor(() => expect(shown()).toContain("Queues "));
  expect(shown()).not.toContain("Settings ");
  expect(shown()).not.toContain("New experiment ");
});
