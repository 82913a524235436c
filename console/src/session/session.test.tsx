// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { send } from "@/api/client";
import { LoginPage } from "@/pages/login/login-page";
import { mayChange, type Session, SessionProvider, useSession, useSessionDoor } from "./session";

const ANNA: Session = { name: "anna", role: "user", csrf: "c-1", expires_at: null };

function Inside() {
  const { state } = useSessionDoor();
  if (state.is === "out") return <LoginPage wasIn={state.wasIn} />;
  if (state.is === "in") return <Name />;
  return <p>{state.is}</p>;
}

function Name() {
  return <p>Hello {useSession().name}</p>;
}

function serve(answers: Record<string, (init: RequestInit) => Response>) {
  const fetched = vi.fn(async (address: string, init: RequestInit) => {
    const answer = answers[`${init.method} ${address}`];
    if (!answer) throw new Error(`Nobody answers ${init.method} ${address}`);
    return answer(init);
  });
  vi.stubGlobal("fetch", fetched);
  return fetched;
}

function problem(status: number, detail: string): Response {
  return new Response(JSON.stringify({ type: "urn:legato:problem:unauthenticated", detail }), {
    status,
    headers: { "Content-Type": "application/problem+json" },
  });
}

function show() {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <SessionProvider>
        <Inside />
      </SessionProvider>
    </QueryClientProvider>,
  );
}

it("who is not logged in logs in; a wrong password is told; later changes carry the value of the session", async () => {
  let numTries = 0;
  const fetched = serve({
    "GET /api/v1/session": () => problem(401, "Nobody is logged in."),
    "POST /api/v1/session": () => {
      numTries += 1;
      return numTries === 1 ? problem(401, "The password is wrong.") : Response.json(ANNA);
    },
    "POST /api/v1/jobs/j-1/pause": () => Response.json({}),
  });
  show();
  fireEvent.change(await screen.findByLabelText("User name"), { target: { value: " anna " } });
  fireEvent.change(screen.getByLabelText("Password", { selector: "input" }), { target: { value: "secret" } });
  fireEvent.click(screen.getByRole("button", { name: "Log in" }));
  expect((await screen.findByRole("alert")).textContent).toBe("The password is wrong.");
  fireEvent.click(screen.getByRole("button", { name: "Log in" }));
  await screen.findByText("Hello anna");
  expect(JSON.parse(String(fetched.mock.calls.at(-1)?.[1].body))).toEqual({ user: "anna", password: "secret" });
  await send("POST", "/api/v1/jobs/j-1/pause");
  expect(new Headers(fetched.mock.calls.at(-1)?.[1].headers).get("X-Legato-CSRF")).toBe("c-1");
});

it("a session that is over leads to the page to log in, which says so", async () => {
  serve({ "GET /api/v1/session": () => Response.json(ANNA), "GET /api/v1/jobs": () => problem(401, "Expired.") });
  show();
  await screen.findByText("Hello anna");
  await send("GET", "/api/v1/jobs").catch(() => {});
  await waitFor(() => expect(screen.getByText(/Your session is over/)).toBeTruthy());
});

it("only its owner and admins may change a run; viewers none", () => {
  expect(mayChange(ANNA, "anna")).toBe(true);
  expect(mayChange(ANNA, "bob")).toBe(false);
  expect(mayChange({ ...ANNA, role: "viewer" }, "anna")).toBe(false);
  expect(mayChange({ ...ANNA, role: "admin" }, "bob")).toBe(true);
});
