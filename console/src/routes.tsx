/** All pages: their addresses, and the ways to them in the bar. Each page is loaded when it is first opened. */

import { type ComponentType, type LazyExoticComponent, lazy } from "react";
import { fetchPage } from "@/parts/fetched";
import type { PageProps, Route } from "@/router/router";
import type { Session } from "@/session/session";

interface PageRoute {
  pattern: string;
  page: LazyExoticComponent<ComponentType<PageProps>>;
  title: string;
}

function openLater(fetches: () => Promise<{ default: ComponentType<PageProps> }>) {
  return lazy(() => fetchPage(fetches));
}

export const ROUTES: readonly PageRoute[] = [
  { pattern: "/jobs", page: openLater(() => import("@/pages/job-list/job-list-page")), title: "Jobs" },
  { pattern: "/jobs/:job", page: openLater(() => import("@/pages/job/job-page")), title: "Job" },
  { pattern: "/compare", page: openLater(() => import("@/pages/compare/compare-page")), title: "Compare" },
  { pattern: "/pool", page: openLater(() => import("@/pages/pool/pool-page")), title: "Pool" },
  { pattern: "/submit", page: openLater(() => import("@/pages/submit/submit-page")), title: "New experiment" },
  { pattern: "/projects", page: openLater(() => import("@/pages/projects/projects-page")), title: "Projects" },
  { pattern: "/projects/:project", page: openLater(() => import("@/pages/projects/project-page")), title: "Project" },
  {
    pattern: "/experiments/:experiment",
    page: openLater(() => import("@/pages/experiments/experiment-page")),
    title: "Experiment",
  },
  {
    pattern: "/definitions/:definition",
    page: openLater(() => import("@/pages/experiments/definition-page")),
    title: "Training definition",
  },
  { pattern: "/sweeps", page: openLater(() => import("@/pages/sweeps/sweeps-page")), title: "Sweeps" },
  { pattern: "/sweeps/:sweep", page: openLater(() => import("@/pages/sweeps/sweep-page")), title: "Sweep" },
  { pattern: "/queues", page: openLater(() => import("@/pages/queues/queues-page")), title: "Queues" },
  { pattern: "/users", page: openLater(() => import("@/pages/people/users-page")), title: "Users" },
  { pattern: "/tokens", page: openLater(() => import("@/pages/people/tokens-page")), title: "Tokens" },
  { pattern: "/webhooks", page: openLater(() => import("@/pages/webhooks/webhooks-page")), title: "Webhooks" },
  { pattern: "/audit", page: openLater(() => import("@/pages/audit/audit-page")), title: "Audit" },
  { pattern: "/settings", page: openLater(() => import("@/pages/settings/settings-page")), title: "Settings" },
];

/**
 * Return where a page is now, or null if its address is its present one. Links from before a job was called a job in the
 * console stay good: `/runs`, `/runs/j-1` and `/compare?run=j-1`.
 */
export function findPresent({ path, query }: Route): Route | null {
  if (path === "/") return { path: "/jobs", query: new URLSearchParams() };
  if (/^\/runs(\/|$)/.test(path)) return { path: path.replace("/runs", "/jobs"), query };
  if (path !== "/compare" || !query.has("run")) return null;
  return {
    path,
    query: new URLSearchParams([...query].map(([name, value]) => [name === "run" ? "job" : name, value])),
  };
}

interface Way {
  path: string;
  label: string;
  isFor?: (session: Session) => boolean;
}

/** The ways in the bar, in this order. */
export const NAVIGATION: readonly Way[] = [
  { path: "/jobs", label: "Jobs" },
  { path: "/pool", label: "Pool" },
  { path: "/projects", label: "Projects" },
  { path: "/sweeps", label: "Sweeps" },
  { path: "/compare", label: "Compare" },
  { path: "/queues", label: "Queues" },
  { path: "/users", label: "Users", isFor: (session) => session.role !== "user" },
  { path: "/audit", label: "Audit", isFor: (session) => session.role === "admin" },
  { path: "/settings", label: "Settings", isFor: (session) => session.role === "admin" },
];
