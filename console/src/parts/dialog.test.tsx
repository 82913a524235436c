// @vitest-environment jsdom
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { Dialog } from "./dialog";
import { TextField } from "./field";

afterEach(cleanup);

it("fields are locked while they are sent, and unlocked after a refusal", async () => {
  let refuse: (reason: Error) => void = () => {};
  const sent = new Promise((_, reject) => {
    refuse = reject;
  });
  render(
    <Dialog title="New" action="Create" onDo={() => sent} onClose={() => {}}>
      <TextField label="Name" />
    </Dialog>,
  );
  const name = screen.getByLabelText<HTMLInputElement>("Name");
  name.focus();
  fireEvent.submit(name);
  expect(name.matches(":disabled")).toBe(true);
  await act(async () => refuse(new Error("It is taken.")));
  expect(screen.getByRole("alert", { hidden: true }).textContent).toBe("It is taken.");
  expect(name.matches(":disabled")).toBe(false);
  expect(document.activeElement).toBe(name);
});

it("the error appears beside the buttons, and disappears when a field changes", async () => {
  const refuse = () => {
    throw new Error("It is taken.");
  };
  render(
    <Dialog title="New" action="Create" aside="Starts now" onDo={refuse} onClose={() => {}}>
      <TextField label="Name" />
    </Dialog>,
  );
  const name = screen.getByLabelText<HTMLInputElement>("Name");
  await act(async () => void fireEvent.submit(name));
  const foot = screen.getByText("Starts now").closest(".dialog-foot");
  expect(foot?.textContent).toContain("It is taken.");
  fireEvent.change(name, { target: { value: "another" } });
  expect(screen.queryByText("It is taken.")).toBeNull();
});

it("the field that asks for the focus has it", () => {
  render(
    <Dialog title="New" onClose={() => {}}>
      <TextField label="Name" />
      <TextField label="Priority" data-autofocus="" />
    </Dialog>,
  );
  expect(document.activeElement).toBe(screen.getByLabelText("Priority"));
});

it("the element that had the focus gets it again when the dialog closes", () => {
  render(<button type="button">Open</button>);
  screen.getByText("Open").focus();
  const dialog = render(
    <Dialog title="New" onClose={() => {}}>
      <TextField label="Name" data-autofocus="" />
    </Dialog>,
  );
  expect(document.activeElement).toBe(screen.getByLabelText("Name"));
  dialog.unmount();
  expect(document.activeElement).toBe(screen.getByText("Open"));
});
