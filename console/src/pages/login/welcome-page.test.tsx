// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { SessionProvider } from "@/session/session";
import { WelcomePage } from "./welcome-page";

const asked: string[] = [];

function show(answers: Record<string, Response>) {
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    asked.push(`${init.method} ${address}`);
    const answer = answers[`${init.method} ${address}`];
    if (!answer) throw new Error(`No handler for ${init.method} ${address}`);
    return answer.clone();
  });
  render(
    <QueryClientProvider client={new QueryClient()}>
      <SessionProvider>
        <WelcomePage code="lgc_1" />
      </SessionProvider>
    </QueryClientProvider>,
  );
}

const OUT = Response.json({ detail: "No user is logged in." }, { status: 401 });
const button = () => screen.getByRole<HTMLButtonElement>("button", { name: "Log in" });

afterEach(cleanup);

it("a link says whom it logs in before it does", async () => {
  show({
    "GET /api/v1/session": Response.json({ name: "bob", role: "user", csrf: "c", expires_at: null }),
    "POST /api/v1/session/links/look": Response.json({ name: "ada", role: "admin", expires_at: 9 }),
  });
  expect(button().disabled).toBe(true);
  expect((await screen.findByText(/You will be logged in as/)).textContent).toBe(
    "You will be logged in as ada (admin).",
  );
  expect(await screen.findByText(/This browser is logged in as bob/)).toBeTruthy();
  expect(button().disabled).toBe(false);
  expect(asked).not.toContain("POST /api/v1/session");
});

it("a link that is used up says so at once", async () => {
  show({
    "GET /api/v1/session": OUT,
    "POST /api/v1/session/links/look": Response.json({ detail: "It has been used." }, { status: 401 }),
  });
  expect((await screen.findByRole("alert")).textContent).toBe("It has been used.");
  expect(button().disabled).toBe(true);
});
