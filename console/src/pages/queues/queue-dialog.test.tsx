// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import QueuesPage from "./queues-page";

vi.mock("@/session/session", () => ({ useSession: () => ({ name: "ada", role: "admin" }) }));
afterEach(cleanup);

const night = { name: "night", weight: 1, floor: 0, ceiling: null, is_open: false, members: ["ben"] };

it("members of a queue are chosen, and unknown names are reported at once", async () => {
  const saved: unknown[] = [];
  const planned: { queues: { members: string[] }[] }[] = [];
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    if (init.method === "PUT") saved.push(JSON.parse(String(init.body)));
    if (address.endsWith("/queues/plan")) {
      planned.push(JSON.parse(String(init.body)));
      return Response.json({ shares: [], effects: [] });
    }
    if (address.endsWith("/users")) return Response.json({ items: ["ada", "ben", "cleo"].map((name) => ({ name })) });
    const loads = { num_slots: 0, num_holding: 0, num_queued: 0 };
    return Response.json({ items: address.endsWith("/queues") ? [{ ...night, ...loads }] : [] });
  });
  const { container } = render(
    <QueryClientProvider client={new QueryClient()}>
      <QueuesPage />
    </QueryClientProvider>,
  );
  fireEvent.click(await screen.findByLabelText("Edit queue night"));
  await waitFor(() => expect(container.querySelectorAll("option[value=cleo]")).toHaveLength(1));
  const field = () => screen.getByLabelText<HTMLInputElement>("Members");
  const type = (value: string) => fireEvent.change(field(), { target: { value } });
  const isBlocked = () => screen.getByText("Save").closest("button")?.disabled;
  await screen.findByText("No job gets more or fewer slots.");
  type("zoe");
  expect(screen.getByText("There is no user zoe.")).toBeTruthy();
  expect(isBlocked()).toBe(true);
  expect(screen.getByText("No job gets more or fewer slots.")).toBeTruthy();
  type("cleo,");
  expect(screen.getByLabelText("Remove cleo")).toBeTruthy();
  expect(field().value).toBe("");
  fireEvent.input(field(), { target: { value: "ada" }, inputType: "insertText" });
  expect(isBlocked()).toBe(false);
  await act(async () => void fireEvent.submit(field()));
  const { name, ...body } = night;
  expect(saved).toEqual([{ ...body, members: ["ben", "cleo", "ada"] }]);
  expect(planned.flatMap((asked) => asked.queues.map((queue) => queue.members.at(-1)))).toEqual(["ben", "cleo"]);
});
