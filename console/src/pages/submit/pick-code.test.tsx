// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Project } from "@/pages/projects/project-data";
import { Held } from "@/parts/field";
import { ToastProvider } from "@/parts/toast";
import { DefinitionDialog } from "./definition-dialog";
import { EMPTY_DRAFT } from "./draft";
import type { Packed } from "./packing/pack";
import { PickCode } from "./pick-code";

const packed: Packed = { title: "new.py", bytes: new Uint8Array(3), sha256: "b".repeat(64), names: null, numLeft: 0 };
const packing = vi.hoisted(() => ({ pack: vi.fn() }));
vi.mock("./packing/pack", () => packing);
afterEach(cleanup);

const transfer = { items: [], files: [new File(["1\n2"], "new.py")] };

it.each([
  [false, 1],
  [true, 0],
])("files that are dropped are taken unless what is typed is being sent: %s", async (isHeld, times) => {
  packing.pack.mockResolvedValue(packed);
  const taken = vi.fn();
  const { container } = render(
    <Held isHeld={isHeld}>
      <PickCode
        draft={{ ...EMPTY_DRAFT, codeFrom: "upload" }}
        onDraft={taken}
        onPacking={() => {}}
        wrongCode={undefined}
        wrongDirectory={undefined}
      />
    </Held>,
  );
  const box = container.querySelector(".drop") as Element;
  fireEvent.dragOver(box, { dataTransfer: transfer });
  expect(container.querySelectorAll("[data-over]")).toHaveLength(times);
  let isLeftToBrowser = true;
  await act(async () => {
    isLeftToBrowser = fireEvent.drop(box, { dataTransfer: transfer });
  });
  expect(isLeftToBrowser).toBe(false);
  expect(taken).toHaveBeenCalledTimes(times);
});

it("nothing can be created while files are packed, because old files would be sent", async () => {
  const plan = { starts: "now", slots: 1, slots_now: 1, reason: "", effects: [] };
  vi.stubGlobal("fetch", async (address: string) => Response.json(address.endsWith("/plan") ? plan : { items: [] }));
  let finish: (packed: Packed) => void = () => {};
  packing.pack.mockReturnValue(new Promise<Packed>((found) => (finish = found)));
  const { container } = render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <DefinitionDialog
          project={{ id: "p-1", name: "tides", owner: "anna", queue: "default" } as Project}
          draft={{ ...EMPTY_DRAFT, codeFrom: "upload" }}
          onDraft={() => {}}
          has={[]}
          onAdded={() => {}}
          onClose={() => {}}
        />
      </ToastProvider>
    </QueryClientProvider>,
  );
  const create = () => screen.getByText("Create").closest("button")?.disabled;
  await waitFor(() => expect(container.querySelector(".drop")).toBeTruthy());
  expect(create()).toBe(false);
  await act(async () => void fireEvent.drop(container.querySelector(".drop") as Element, { dataTransfer: transfer }));
  await waitFor(() => expect(packing.pack).toHaveBeenCalled());
  expect(create()).toBe(true);
  await act(async () => finish(packed));
  expect(create()).toBe(false);
});
