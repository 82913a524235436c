// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { send } from "@/api/client";
import { LoginDialog, LoginPage } from "@/pages/login/login-page";
import { mayChange, type Session, SessionProvider, useSession, useSessionDoor } from "./session";

const ANNA: Session = { name: "anna", role: "user", csrf: "c-1", expires_at: null };

function Inside() {
  const { state } = useSessionDoor();
  if (state.is === "out") return <LoginPage />;
  if (state.is !== "in") return <p>{state.is}</p>;
  return (
    <>
      <Page key={state.session.name} />
      {state.isFromOtherTab && <p>from another tab</p>}
      {state.isOver && <LoginDialog user={state.session.name} />}
    </>
  );
}

function Page() {
  return (
    <>
      <p>Hello {useSession().name}</p>
      <input aria-label="Draft" />
    </>
  );
}

function serve(answers: Record<string, (init: RequestInit) => Response>) {
  const fetched = vi.fn(async (address: string, init: RequestInit) => {
    const answer = answers[`${init.method} ${address}`];
    if (!answer) throw new Error(`No handler for ${init.method} ${address}`);
    return answer(init);
  });
  vi.stubGlobal("fetch", fetched);
  return fetched;
}

function problem(status: number, detail: string, kind = "unauthenticated"): Response {
  return new Response(JSON.stringify({ type: `urn:legato:problem:${kind}`, detail }), {
    status,
    headers: { "Content-Type": "application/problem+json" },
  });
}

function show() {
  const queries = new QueryClient();
  render(
    <QueryClientProvider client={queries}>
      <SessionProvider>
        <Inside />
      </SessionProvider>
    </QueryClientProvider>,
  );
  return { queries };
}

afterEach(cleanup);

it("a user logs in; a wrong password is reported; later changes carry the value of the session", async () => {
  let numTries = 0;
  const fetched = serve({
    "GET /api/v1/session": () => problem(401, "No user is logged in."),
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

describe("a session that is over", () => {
  it("shows the log-in over the page, keeps the input, and sends no requests meanwhile", async () => {
    let isIn = true;
    const fetched = serve({
      "GET /api/v1/session": () => Response.json(ANNA),
      "GET /api/v1/jobs": () => (isIn ? Response.json({}) : problem(401, "Expired.")),
      "POST /api/v1/session": () => {
        isIn = true;
        return Response.json({ ...ANNA, csrf: "c-2" });
      },
    });
    show();
    fireEvent.change(await screen.findByLabelText("Draft"), { target: { value: "half a sentence" } });
    isIn = false;
    await act(() => send("GET", "/api/v1/jobs").catch(() => {}));
    expect(screen.getByText(/Your session has ended/)).toBeTruthy();
    expect(screen.getByLabelText<HTMLInputElement>("User name").value).toBe("anna");
    expect(document.activeElement).toBe(screen.getByLabelText("Password", { selector: "input" }));
    const numAsked = fetched.mock.calls.length;
    await expect(send("GET", "/api/v1/jobs")).rejects.toMatchObject({ status: 401 });
    expect(fetched.mock.calls).toHaveLength(numAsked);
    fireEvent.change(screen.getByLabelText("Password", { selector: "input" }), { target: { value: "secret" } });
    fireEvent.submit(screen.getByLabelText("User name"));
    await waitFor(() => expect(screen.queryByText(/Your session has ended/)).toBeNull());
    expect(screen.getByLabelText<HTMLInputElement>("Draft").value).toBe("half a sentence");
    expect((await send("GET", "/api/v1/jobs")).ok).toBe(true);
  });

  it("shows none of its data to another user who logs in", async () => {
    serve({
      "GET /api/v1/session": () => Response.json(ANNA),
      "GET /api/v1/jobs": () => problem(401, "Expired."),
      "POST /api/v1/session": () => Response.json({ ...ANNA, name: "bob" }),
    });
    show();
    fireEvent.change(await screen.findByLabelText("Draft"), { target: { value: "a secret of hers" } });
    await act(() => send("GET", "/api/v1/jobs").catch(() => {}));
    fireEvent.change(screen.getByLabelText("User name"), { target: { value: "bob" } });
    fireEvent.submit(screen.getByLabelText("User name"));
    await screen.findByText("Hello bob");
    expect(screen.getByLabelText<HTMLInputElement>("Draft").value).toBe("");
  });
});

describe("another tab", () => {
  const BOB: Session = { ...ANNA, name: "bob", csrf: "b-1" };

  it.each<[string, () => void]>([
    ["when the page is looked at", () => window.dispatchEvent(new Event("focus"))],
    ["when that tab tells it", () => window.dispatchEvent(new StorageEvent("storage", { key: "legato-session" }))],
  ])("that logs in as another user is noticed %s", async (_, happens) => {
    let now = ANNA;
    serve({ "GET /api/v1/session": () => Response.json(now) });
    const { queries } = show();
    await screen.findByText("Hello anna");
    queries.setQueryData(["jobs"], "what anna may see");
    now = BOB;
    await act(async () => happens());
    await screen.findByText("Hello bob");
    expect(screen.getByText("from another tab")).toBeTruthy();
    expect(queries.getQueryData(["jobs"])).toBeUndefined();
  });

  it("that logs out or in again is noticed", async () => {
    let now: Session | null = ANNA;
    serve({ "GET /api/v1/session": () => (now ? Response.json(now) : problem(401, "No user is logged in.")) });
    show();
    fireEvent.change(await screen.findByLabelText("Draft"), { target: { value: "typed" } });
    now = null;
    await act(async () => void window.dispatchEvent(new Event("focus")));
    await screen.findByText(/Your session has ended/);
    now = { ...ANNA, csrf: "c-9" };
    await act(async () => void window.dispatchEvent(new Event("focus")));
    await waitFor(() => expect(screen.queryByText(/Your session has ended/)).toBeNull());
    expect(screen.getByLabelText<HTMLInputElement>("Draft").value).toBe("typed");
  });

  it("with a new session of the same user: a change with the old CSRF value is sent again", async () => {
    let now = ANNA;
    const fetched = serve({
      "GET /api/v1/session": () => Response.json(now),
      "POST /api/v1/jobs/j-1/pause": (init) =>
        new Headers(init.headers).get("X-Legato-CSRF") === now.csrf
          ? Response.json({})
          : problem(403, "Foreign.", "wrong-origin"),
    });
    show();
    await screen.findByText("Hello anna");
    now = { ...ANNA, csrf: "c-2" };
    await act(async () => expect((await send("POST", "/api/v1/jobs/j-1/pause")).ok).toBe(true));
    now = { ...BOB };
    const refused = await act(() => send("POST", "/api/v1/jobs/j-1/pause").catch((thrown: Error) => thrown));
    expect(String(refused)).toContain("Nothing was changed, because another user");
    await screen.findByText("Hello bob");
    const numPaused = fetched.mock.calls.filter(([address]) => address.endsWith("/pause")).length;
    expect(numPaused).toBe(3);
  });
});

it("only the owner and admins may change a job; viewers may change none", () => {
  expect(mayChange(ANNA, "anna")).toBe(true);
  expect(mayChange(ANNA, "bob")).toBe(false);
  expect(mayChange({ ...ANNA, role: "viewer" }, "anna")).toBe(false);
  expect(mayChange({ ...ANNA, role: "admin" }, "bob")).toBe(true);
});
