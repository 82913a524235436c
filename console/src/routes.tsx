/** All pages: their addresses, and the ways to them in the bar. Each page is loaded when it is first opened. */

import { type ComponentType, type LazyExoticComponent, lazy } from "react";
import type { Session } from "@/session/session";

/** What a page gets: the names in its address. */
export interface PageProps {
  names: Record<string, string>;
}

interface PageRoute {
  pattern: string;
  page: LazyExoticComponent<ComponentType<PageProps>>;
  title: string;
}

export const ROUTES: readonly PageRoute[] = [
  { pattern: "/runs", page: lazy(() => import("@/pages/runs/runs-page")), title: "Runs" },
  { pattern: "/runs/:job", page: lazy(() => import("@/pages/run/run-page")), title: "Run" },
  { pattern: "/compare", page: lazy(() => import("@/pages/compare/compare-page")), title: "Compare" },
];

interface Way {
  path: string;
  label: string;
  isFor?: (session: Session) => boolean;
}

/** The ways in the bar, in this order. */
export const NAVIGATION: readonly Way[] = [
  { path: "/runs", label: "Runs" },
  { path: "/compare", label: "Compare" },
];
