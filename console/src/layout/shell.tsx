/** What stands around every page: the bar with the ways to the others, and the one that says when the server is away. */

import { type ReactNode, useEffect, useRef, useState } from "react";
import { formatDuration, formatTime } from "@/format/time";
import { useLinkState } from "@/live/live";
import mark from "@/mark.svg";
import { useAccessRequests } from "@/pages/projects/project-data";
import { Button } from "@/parts/button";
import { Icon } from "@/parts/icon";
import { Menu, type MenuItem } from "@/parts/menu";
import { useNow } from "@/parts/now";
import { useToasts } from "@/parts/toast";
import { go, Link, useRoute } from "@/router/router";
import { NAVIGATION } from "@/routes";
import { useSession, useSessionDoor } from "@/session/session";
import { Keys } from "./finder";
import type { KeyAction } from "./keys";
import "./layout.css";
import { setTheme, type Theme, useTheme } from "./theme";

/** The frame of all pages of who is logged in. */
export function Shell({ children }: { children: ReactNode }) {
  const { path } = useRoute();
  const main = useRef<HTMLElement>(null);
  const [open, setOpen] = useState<KeyAction | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new page begins at its top
  useEffect(() => {
    main.current?.scrollTo?.(0, 0);
  }, [path]);
  return (
    <div className="shell">
      <button type="button" className="button skip" onClick={() => main.current?.focus()}>
        Skip to the content
      </button>
      <button
        type="button"
        className="button skip"
        onClick={() => (findTableStop(main.current) ?? main.current)?.focus()}
      >
        Skip to the table
      </button>
      <TopBar onFind={() => setOpen("find")} onHelp={() => setOpen("help")} />
      <Keys open={open} onOpen={setOpen} />
      <div>
        <AwayBar />
        <AccessBar />
      </div>
      <main className="main" ref={main} tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

/** Return the row of the page's first table at which the tabulator stops. */
function findTableStop(main: HTMLElement | null): HTMLElement | null {
  return main?.querySelector<HTMLElement>('table tbody tr[tabindex="0"]') ?? null;
}

function TopBar({ onFind, onHelp }: { onFind: () => void; onHelp: () => void }) {
  const session = useSession();
  const { path } = useRoute();
  const [isOpen, setOpen] = useState(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: it closes when the page changes
  useEffect(() => setOpen(false), [path]);
  const shown = NAVIGATION.filter((entry) => !entry.isFor || entry.isFor(session));
  return (
    <header className="top">
      <span className="top-burger">
        <Button
          icon={isOpen ? "cross" : "menu"}
          look="plain"
          aria-label="Pages"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        />
      </span>
      <Link to="/jobs" className="top-mark">
        <img src={mark} alt="" />
        <span className="top-name">Legato</span>
      </Link>
      <nav className="top-nav" aria-label="Pages" {...(isOpen ? { "data-open": "" } : {})}>
        {shown.map((entry) => (
          <Link
            key={entry.path}
            to={entry.path}
            {...(path === entry.path || path.startsWith(`${entry.path}/`) ? { "aria-current": "page" as const } : {})}
          >
            {entry.label}
          </Link>
        ))}
      </nav>
      <div className="top-end">
        <Button
          icon="search"
          look="plain"
          isSmall
          aria-label="Find a page or a job"
          aria-keyshortcuts="Control+K"
          title="Find a page or a job (Ctrl-K)"
          onClick={onFind}
        />
        {session.role !== "viewer" && (
          <Button icon="plus" look="main" isSmall onClick={() => go("/submit")}>
            New experiment
          </Button>
        )}
        <UserMenu onHelp={onHelp} />
      </div>
    </header>
  );
}

const THEMES: readonly { theme: Theme; label: string; icon: "sun" | "moon" | "system" }[] = [
  { theme: "auto", label: "System", icon: "system" },
  { theme: "light", label: "Light", icon: "sun" },
  { theme: "dark", label: "Dark", icon: "moon" },
];

function UserMenu({ onHelp }: { onHelp: () => void }) {
  const session = useSession();
  const { logOut } = useSessionDoor();
  const toasts = useToasts();
  const chosen = useTheme();
  const themes = THEMES.map(
    ({ theme, label, icon }): MenuItem => ({
      label,
      icon,
      isChosen: theme === chosen,
      onPick: () => setTheme(theme),
    }),
  );
  return (
    <Menu
      look="plain"
      isSmall
      icon="user"
      label={session.name}
      items={[
        { head: `Logged in as ${session.name} (${session.role})` },
        { label: "My tokens", icon: "lock", onPick: () => go("/tokens") },
        { label: "Webhooks", icon: "flag", onPick: () => go("/webhooks") },
        "line",
        { head: "Theme" },
        ...themes,
        "line",
        { label: "Keys", icon: "info", onPick: onHelp },
        { label: "Log out", icon: "arrowUp", onPick: () => void logOut().catch(toasts.tellProblem) },
      ]}
    />
  );
}

/** Says on each page that a user waits for an answer of this one. */
function AccessBar() {
  const session = useSession();
  const { path } = useRoute();
  const requests = useAccessRequests();
  const open = requests.data?.items.filter((one) => one.stage === "open" && one.owner === session.name) ?? [];
  if (open.length === 0 || path === "/projects") return null;
  return (
    <div className="away tone-info" role="status">
      <Icon name="user" size={15} />
      <span>
        {[...new Set(open.map((one) => one.user))].join(", ")} asked for access to your training definitions.{" "}
        <Link to="/projects">Answer</Link>
      </span>
    </div>
  );
}

function AwayBar() {
  const state = useLinkState();
  if (state.is !== "away") return null;
  return <Away since={state.since} />;
}

function Away({ since }: { since: number }) {
  const now = useNow();
  return (
    <div className="away tone-bad" role="alert">
      <Icon name="alert" size={15} />
      <span>
        Can't reach the server since {formatTime(since)}
        <span aria-hidden="true"> ({formatDuration(now - since)})</span>. Data may be out of date; reconnecting…
      </span>
    </div>
  );
}
