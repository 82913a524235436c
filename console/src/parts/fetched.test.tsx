// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import { type Component, lazy, Suspense } from "react";
import { afterEach, expect, it, vi } from "vitest";
import { Boundary } from "./boundary";
import { fetchPage, PagesReplaced } from "./fetched";

afterEach(cleanup);

const gone = () => Promise.reject(new TypeError("Failed to fetch dynamically imported module: /assets/x.js"));

it("a page that the server no longer has is reported as replaced, with a button to reload", async () => {
  vi.stubGlobal("fetch", async () => new Response());
  vi.spyOn(console, "error").mockImplementation(() => {});
  const Page = lazy(() => fetchPage<{ default: typeof Component }>(gone));
  render(
    <Boundary>
      <Suspense>
        <Page />
      </Suspense>
    </Boundary>,
  );
  await screen.findByText("The console was updated");
  expect(screen.getByRole("button", { name: "Reload" })).toBeTruthy();
  expect(screen.queryByText(/Try again|dynamically/)).toBeNull();
});

it("is requested again while the server is away", async () => {
  let numAsked = 0;
  vi.stubGlobal("fetch", async () => {
    numAsked += 1;
    if (numAsked < 3) throw new TypeError("Failed to fetch");
    return new Response();
  });
  const page = await fetchPage(() => (numAsked < 3 ? gone() : Promise.resolve("the page")), 1);
  expect([page, numAsked]).toEqual(["the page", 3]);
  await expect(fetchPage(gone, 1)).rejects.toBeInstanceOf(PagesReplaced);
});
