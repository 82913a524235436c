// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { NewTokenDialog } from "./tokens-page";

const NOW = 1_000_000;
vi.mock("@/session/session", () => ({
  useSession: () => ({ name: "ada", role: "admin", csrf: "c", expires_at: 1_000_000 + 43_201 }),
}));
vi.mock("@/parts/now", () => ({ useNow: () => NOW, Ago: () => null }));
vi.mock("@/parts/toast", () => ({ useToasts: () => ({ tell: () => {} }) }));
afterEach(cleanup);

it("a token ends, and needs the password if it outlives the session", async () => {
  const sent: unknown[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    sent.push(JSON.parse(String(init.body)));
    return Response.json({ secret: "lgt_new", token: {} }, { status: 201 });
  });
  const open = () =>
    render(
      <QueryClientProvider client={new QueryClient()}>
        <NewTokenDialog user="ada" onClose={() => {}} />
      </QueryClientProvider>,
    );
  const type = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });
  const isBlocked = () => screen.getByText("Create").closest("button")?.disabled;
  open();
  type("Name", "ci");
  expect(isBlocked()).toBe(true);
  type("Your password", "correct horse");
  expect(isBlocked()).toBe(false);
  type("Expires", "30");
  await act(async () => void fireEvent.submit(screen.getByLabelText("Name")));
  cleanup();
  open();
  type("Name", "short");
  type("Expires", "session");
  expect(screen.queryByLabelText("Your password")).toBeNull();
  expect(isBlocked()).toBe(false);
  await act(async () => void fireEvent.submit(screen.getByLabelText("Name")));
  expect(sent).toEqual([
    { name: "ci", role: "admin", days: 30, password: "correct horse" },
    { name: "short", role: "admin", days: 0.5 },
  ]);
});
