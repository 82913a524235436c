// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { TabPanel, Tabs } from "./tabs";

afterEach(cleanup);

const tabsOf = (...names: string[]) => (
  <>
    <Tabs
      label="Views"
      tabs={names.map((name) => ({ name, label: name }))}
      chosen={names[0] ?? ""}
      onChoose={() => {}}
    />
    <TabPanel chosen={names[0] ?? ""}>{names[0]}</TabPanel>
  </>
);

it("tabs of a page and of a dialog over it have panels of their own", () => {
  render(
    <>
      {tabsOf("charts", "logs")}
      {tabsOf("new", "existing")}
    </>,
  );
  const panels = screen.getAllByRole("tabpanel");
  expect(new Set(panels.map((panel) => panel.id)).size).toBe(2);
  const charts = screen.getByRole("tab", { name: "charts" });
  expect(document.getElementById(charts.getAttribute("aria-controls") ?? "")).toBe(panels[0]);
  expect(screen.getByRole("tab", { name: "logs" }).hasAttribute("aria-controls")).toBe(false);
});
