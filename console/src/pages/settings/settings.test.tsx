// @vitest-environment jsdom
import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { Meaning, sayValue } from "./settings-page";

afterEach(cleanup);

it("lists are joined by commas, and a missing value is a dash", () => {
  expect(sayValue(["10.0.0.1", "10.0.0.2"])).toBe("10.0.0.1, 10.0.0.2");
  expect([sayValue([]), sayValue(null), sayValue(""), sayValue(5), sayValue(true)]).toEqual([
    "none",
    "–",
    '""',
    "5",
    "true",
  ]);
});

it("names in backticks are shown as code", () => {
  const { container } = render(<Meaning text="As `legato up` says, or `port`." />);
  expect(container.textContent).toBe("As legato up says, or port.");
  expect([...container.querySelectorAll("code")].map((one) => one.textContent)).toEqual(["legato up", "port"]);
});
