// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { makeJob } from "@/jobs/make-job";
import JobPage from "./job-page";

vi.mock("./header", () => ({ JobHeader: ({ job }: { job: { stage: string } }) => <h1>{job.stage}</h1> }));
vi.mock("./charts-tab", () => ({ ChartsTab: () => null }));
vi.mock("./logs/logs-tab", () => ({ LogsTab: () => null }));
afterEach(cleanup);

it("the page stays on its tab when the job fails", async () => {
  let job = makeJob({ stage: "starting", progress: null });
  vi.stubGlobal("fetch", async () => Response.json(job));
  const client = new QueryClient();
  const show = () =>
    render(
      <QueryClientProvider client={client}>
        <JobPage names={{ job: "j-1" }} />
      </QueryClientProvider>,
    );
  const tab = () => screen.getByRole("tab", { selected: true }).textContent;
  show();
  await screen.findByText("starting");
  expect(tab()).toBe("Charts");
  job = makeJob({ stage: "failed", progress: null });
  await act(() => client.refetchQueries());
  await screen.findByText("failed");
  expect(tab()).toBe("Charts");
  cleanup();
  show();
  await screen.findByText("failed");
  expect(tab()).toBe("Logs");
});
