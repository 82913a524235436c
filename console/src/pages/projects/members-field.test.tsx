// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { ProjectDialog } from "./project-dialog";

const who = vi.hoisted(() => ({ role: "admin" }));
vi.mock("@/session/session", () => ({ useSession: () => ({ name: "ada", role: who.role }) }));

afterEach(cleanup);

function show(role: string) {
  who.role = role;
  const bodies: { members: string[] }[] = [];
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    if (address.endsWith("/users")) return Response.json({ items: ["ada", "ben", "cleo"].map((name) => ({ name })) });
    if (init.method === "GET") return Response.json({ items: [] });
    bodies.push(JSON.parse(String(init.body)));
    const told = "Cannot create the project: there is no user 'zoe'.";
    const errors = [{ field: "body.members", message: told }];
    return Response.json({ type: "urn:legato:problem:invalid", detail: told, errors }, { status: 422 });
  });
  const { container } = render(
    <QueryClientProvider client={new QueryClient()}>
      <ProjectDialog onDone={() => {}} onClose={() => {}} />
    </QueryClientProvider>,
  );
  fireEvent.change(screen.getByLabelText("Name"), { target: { value: "digits" } });
  const field = () => screen.getByLabelText<HTMLInputElement>("Members");
  const type = (value: string) => fireEvent.change(field(), { target: { value } });
  return { bodies, container, field, type };
}

it("a user who may list users selects members, and unknown names are reported at once", async () => {
  const { bodies, container, field, type } = show("admin");
  await waitFor(() => expect(container.querySelectorAll("option[value=ben]")).toHaveLength(1));
  expect(container.querySelectorAll("datalist option[value=ada]")).toHaveLength(0);
  type("zoe");
  expect(screen.getByText("There is no user zoe.")).toBeTruthy();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Create", hidden: true }).disabled).toBe(true);
  type("ben");
  fireEvent.keyDown(field(), { key: "Enter" });
  type("cleo");
  await act(async () => void fireEvent.submit(field()));
  expect(bodies.map((body) => body.members)).toEqual([["ben", "cleo"]]);
});

it("other users type names, and the server reports unknown ones", async () => {
  const { bodies, type, field } = show("user");
  type("ben, zoe,");
  expect(screen.getByLabelText("Remove zoe")).toBeTruthy();
  await act(async () => void fireEvent.submit(field()));
  expect(bodies.map((body) => body.members)).toEqual([["ben", "zoe"]]);
  expect(screen.getAllByText("Cannot create the project: there is no user 'zoe'.").length).toBeGreaterThan(0);
});

it("a typed name is added when it is complete, a selected one at once", async () => {
  const { container, field } = show("admin");
  await waitFor(() => expect(container.querySelectorAll("option[value=ben]")).toHaveLength(1));
  const input = (value: string, inputType: string) => fireEvent.input(field(), { target: { value }, inputType });
  for (const kind of ["insertText", "insertCompositionText", "deleteContentBackward"]) {
    input("ben", kind);
    expect(field().value).toBe("ben");
    input("bendix", kind);
  }
  input("ben", "insertReplacementText");
  expect(field().value).toBe("");
  expect(screen.getByLabelText("Remove ben")).toBeTruthy();
});
