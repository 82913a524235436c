// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { Machine, type NodeState } from "./machine";

let role = "admin";
vi.mock("@/session/session", () => ({ useSession: () => ({ name: "ada", role }) }));
afterEach(cleanup);

const own: NodeState = {
  name: "head",
  num_slots: 2,
  num_usable: 2,
  num_free: 1,
  kind: "k",
  traits: {},
  labels: {},
  gpu_types: {},
  agent: null,
  address: null,
  metrics: null,
};

function withAgent(state: string, more: Partial<NodeState> = {}): NodeState {
  const agent = { state, version: "0.1.0", address: "10.0.0.2", joined_at: 1, seen_at: 2 };
  const drained = state === "drained" ? { drained_by: "ada", drain_reason: "a new disk" } : {};
  return { ...own, name: "gpu-2", ...more, agent: { ...agent, drained_by: null, drain_reason: null, ...drained } };
}

function show(...nodes: NodeState[]) {
  return render(
    <QueryClientProvider client={new QueryClient()}>
      {nodes.map((node) => (
        <Machine key={node.name} node={node} isNamed />
      ))}
    </QueryClientProvider>,
  );
}

it("machines show what jobs can ask for, and why they are not used", () => {
  show(own, withAgent("drained", { gpu_types: { "NVIDIA A100": 4 }, labels: { rack: "r1" } }));
  expect(screen.getByText("drained by ada: a new disk")).toBeTruthy();
  expect(screen.getByText("4 × NVIDIA A100 · rack=r1")).toBeTruthy();
});

it("an admin drains a machine with a reason, and uses it again", async () => {
  const sent: [string, unknown][] = [];
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    sent.push([address, init.body === undefined ? null : JSON.parse(String(init.body))]);
    return new Response(null, { status: 204 });
  });
  show(own, withAgent("ready"));
  fireEvent.click(screen.getByRole("button", { name: "Drain gpu-2" }));
  fireEvent.change(screen.getByLabelText("Reason"), { target: { value: "a new disk" } });
  fireEvent.submit(screen.getByLabelText("Reason"));
  await waitFor(() => expect(sent).toEqual([["/api/v1/nodes/gpu-2/drain", { reason: "a new disk" }]]));
  cleanup();
  show(own, withAgent("drained"));
  fireEvent.click(screen.getByRole("button", { name: "Resume gpu-2" }));
  fireEvent.submit(screen.getByText("Jobs can use its slots again."));
  await waitFor(() => expect(sent[1]?.[0]).toBe("/api/v1/nodes/gpu-2/resume"));
});

it("an admin removes a machine that does not answer or has left, and no other", async () => {
  const sent: [string, unknown][] = [];
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    sent.push([address, init.method]);
    return new Response(null, { status: 204 });
  });
  show(own, withAgent("ready"), withAgent("drained", { name: "gpu-3" }));
  expect(screen.queryByRole("button", { name: /Remove/ })).toBeNull();
  for (const state of ["silent", "left"]) {
    cleanup();
    show(own, withAgent(state));
    fireEvent.click(screen.getByRole("button", { name: "Remove gpu-2" }));
    fireEvent.submit(screen.getByText(/needs a join token/));
    await waitFor(() => expect(sent.splice(0)).toEqual([["/api/v1/nodes/gpu-2", "DELETE"]]));
  }
});

it("a removed machine whose slots a job still holds is not called the server", () => {
  show(own, withAgent("ready"), { ...own, name: "gpu-3", num_usable: 0 });
  expect(screen.getByText("removed")).toBeTruthy();
});

it("other users see the machines and change none", () => {
  role = "user";
  show(own, withAgent("ready"));
  expect(screen.queryByRole("button")).toBeNull();
  role = "admin";
});
