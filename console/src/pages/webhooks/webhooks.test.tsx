// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { ToastProvider } from "@/parts/toast";
import { findChanges, healthOf, makeDraft, readDraft, sayConditions, type Webhook } from "./webhook-data";
import WebhooksPage from "./webhooks-page";

const session = vi.hoisted(() => ({ name: "ann", role: "user" }));
vi.mock("@/session/session", () => ({
  useSession: () => session,
  maySubmit: (one: { role: string }) => one.role !== "viewer",
}));

const screenOf = vi.hoisted(() => ({ isNarrow: false }));
vi.mock("@/parts/narrow", () => ({ useNarrow: () => screenOf.isNarrow }));

function makeWebhook(more: Partial<Webhook> = {}): Webhook {
  return {
    id: "h-1",
    owner: "ann",
    url: "https://example.org/hook",
    project: null,
    on: ["failed"],
    below_workers: null,
    waiting_s: null,
    created_at: 1000,
    num_pending: 0,
    num_failed: 0,
    num_dropped: 0,
    tried_at: null,
    error: null,
    ...more,
  };
}

const sent: { method: string; path: string; body: unknown }[] = [];
let items: Webhook[] = [];

beforeEach(() => {
  sent.length = 0;
  session.role = "user";
  screenOf.isNarrow = false;
  window.location.hash = "#/webhooks";
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    const [path = ""] = address.replace("/api/v1", "").split("?");
    const method = init.method ?? "GET";
    if (method !== "GET") sent.push({ method, path, body: init.body ? JSON.parse(String(init.body)) : null });
    if (path === "/projects") return Response.json({ items: [{ id: "p-1", name: "Digits" }], after: null });
    if (method === "POST" && path.endsWith("/test")) return Response.json({ error: "it answered with status 500" });
    if (method === "POST") return Response.json({ webhook: makeWebhook(), secret: "lgw_7" }, { status: 201 });
    if (method === "PATCH") return Response.json(makeWebhook());
    if (method === "DELETE") return new Response(null, { status: 204 });
    return Response.json(path === "/webhooks" ? { items } : { ...items[0], deliveries: [] });
  });
});
afterEach(cleanup);

async function show(...webhooks: Webhook[]) {
  items = webhooks;
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <WebhooksPage />
      </ToastProvider>
    </QueryClientProvider>,
  );
  await screen.findByRole("table", { name: "Webhooks" });
}

const type = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });
const pick = (name: string) => {
  fireEvent.click(screen.getByRole("button", { name: /^Actions for/ }));
  fireEvent.click(screen.getByRole("menuitem", { name }));
};

it.each([
  [{}, "Not called yet", "quiet", ""],
  [{ tried_at: 5 }, "Working", "good", ""],
  [{ tried_at: 5, error: "it answered with status 500" }, "Last try failed", "warn", "It answered with status 500."],
  [{ tried_at: 5, error: "no answer", num_failed: 2 }, "Not working", "bad", "No answer; 2 messages given up."],
  [{ tried_at: 5, error: "no answer", num_dropped: 1 }, "Not working", "bad", "No answer; 1 message dropped."],
  [{ tried_at: 5, num_failed: 1 }, "Working", "good", "1 message given up."],
])("the state of %j is: %s", (more, word, tone, told) => {
  expect(healthOf(makeWebhook(more))).toEqual({ word, tone, told });
});

it("a draft comes back as it was, and only what differs is sent", () => {
  const webhook = makeWebhook({ on: ["failed", "ended"], below_workers: 3, waiting_s: 5400, project: "p-1" });
  expect(sayConditions(webhook)).toBe("ended, failed, below 3 workers, waiting for 90 minutes");
  const body = readDraft(makeDraft(webhook));
  if (typeof body === "string") throw new Error(body);
  expect(findChanges(webhook, body)).toEqual({});
  expect(findChanges(webhook, { ...body, waiting_s: null, on: ["ended"] })).toEqual({ waiting_s: null, on: ["ended"] });
  const draft = makeDraft(null);
  expect(readDraft(draft)).toBe("Enter a URL.");
  const url = "https://example.org";
  expect(readDraft({ ...draft, url, onFailed: false })).toBe("Choose at least one condition.");
  expect(readDraft({ ...draft, url, below: "0" })).toContain("whole number");
  expect(readDraft({ ...draft, url, waiting: "x" })).toContain("larger than 0");
});

it("a receiver that does not work is said above the table and in its row", async () => {
  await show(makeWebhook({ tried_at: 5, error: "no answer", num_failed: 2, num_pending: 4 }));
  expect(screen.getByRole("alert").textContent).toContain("1 receiver does not accept messages.");
  const row = screen.getByText("No answer; 2 messages given up.").closest("tr");
  expect(row?.textContent).toContain("example.org/hookfailed");
  expect(row?.textContent).toContain("4");
});

it("on a phone a webhook is one card with its state", async () => {
  screenOf.isNarrow = true;
  await show(makeWebhook({ tried_at: 5, error: "no answer" }));
  expect(screen.getAllByRole("columnheader")).toHaveLength(2);
  expect(screen.getByText("Last try failed").closest("td")?.textContent).toContain("My jobs · failed");
});

it("a webhook is added, and its secret shown once", async () => {
  await show();
  fireEvent.click(screen.getByRole("button", { name: "Add webhook" }));
  await screen.findByText("Jobs of project Digits");
  type("URL", " https://example.org/new ");
  type("Jobs", "p-1");
  type("A job waits in its queue for longer than", "2");
  await act(async () => void fireEvent.submit(screen.getByLabelText("URL")));
  expect(sent).toEqual([
    {
      method: "POST",
      path: "/webhooks",
      body: { url: "https://example.org/new", project: "p-1", on: ["failed"], below_workers: null, waiting_s: 7200 },
    },
  ]);
  expect(await screen.findByText("lgw_7")).toBeTruthy();
});

it("a webhook is changed, tested and removed", async () => {
  await show(makeWebhook());
  pick("Change…");
  const save = () => screen.getByRole<HTMLButtonElement>("button", { name: "Save", hidden: true });
  expect(save().disabled).toBe(true);
  fireEvent.click(screen.getByLabelText("A job has failed"));
  expect(save().disabled).toBe(true);
  expect(screen.getByText("Choose at least one condition.")).toBeTruthy();
  type("A job shrinks below this number of workers", "3");
  await act(async () => void fireEvent.submit(screen.getByLabelText("URL")));
  pick("Send test");
  await screen.findByText("The test was not accepted: it answered with status 500.");
  pick("Remove…");
  await act(async () => void fireEvent.click(screen.getByRole("button", { name: "Remove", hidden: true })));
  await waitFor(() => expect(sent).toHaveLength(3));
  expect(sent).toEqual([
    { method: "PATCH", path: "/webhooks/h-1", body: { on: [], below_workers: 3 } },
    { method: "POST", path: "/webhooks/h-1/test", body: null },
    { method: "DELETE", path: "/webhooks/h-1", body: null },
  ]);
});

it("a viewer sees webhooks but changes none, and a project shows its own", async () => {
  session.role = "viewer";
  window.location.hash = "#/webhooks?project=p-1";
  await show(makeWebhook(), makeWebhook({ id: "h-2", project: "p-1", url: "https://example.org/digits" }));
  expect(screen.queryByRole("button", { name: "Add webhook" })).toBe(null);
  expect(screen.getAllByRole("button", { name: /^Actions for/ })).toHaveLength(1);
  fireEvent.click(screen.getByRole("button", { name: "Actions for https://example.org/digits" }));
  expect(screen.getByRole<HTMLButtonElement>("menuitem", { name: "Change…" }).disabled).toBe(true);
});
