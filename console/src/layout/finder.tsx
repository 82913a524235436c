/** The finder: a field that goes to a page or a job, by the keyboard alone if one likes. And the list of all keys. */

import { useEffect, useId, useRef, useState } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { Dialog } from "@/parts/dialog";
import { Icon } from "@/parts/icon";
import { MAX_SEARCH_CHARS, useLater } from "@/parts/later";
import { Ago } from "@/parts/now";
import { StageBadge } from "@/parts/stage";
import { go } from "@/router/router";
import { NAVIGATION } from "@/routes";
import { useSession } from "@/session/session";
import { KEYS, type KeyAction, readKey, takesText } from "./keys";

const NUM_JOBS = 8;

/** Listens for the keys that work on every page; opens the finder or the list of keys. */
export function Keys({ open, onOpen }: { open: KeyAction | null; onOpen: (what: KeyAction | null) => void }) {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const found = readKey(event, takesText(document.activeElement));
      // A dialog holds the focus until it closes.
      if (!found || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      const field = found === "search" && document.querySelector<HTMLInputElement>('main input[type="search"]:enabled');
      if (field) {
        field.focus();
        field.select();
      } else onOpen(found === "search" ? "find" : found);
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [onOpen]);
  if (open === "find") return <Finder onClose={() => onOpen(null)} />;
  return open === "help" ? <KeyList onClose={() => onOpen(null)} /> : null;
}

interface Match {
  path: string;
  label: string;
  job?: Job;
}

function Finder({ onClose }: { onClose: () => void }) {
  const session = useSession();
  const [text, setText] = useState("");
  const search = text.trim().slice(0, MAX_SEARCH_CHARS);
  const wanted = useLater(search);
  // By its path, because another answer may have it at another place.
  const [path, setPath] = useState<string | null>(null);
  // Enter was pressed before the jobs that fit the typed text had come.
  const [isDue, setDue] = useState(false);
  const list = useId();
  const chosen = useRef<HTMLDivElement>(null);
  const jobs = useAsk(
    ["jobs", "find"],
    "/jobs",
    { query: { limit: NUM_JOBS, ...(wanted ? { search: wanted } : {}) } },
    { keepsLast: true, fresh_s: 10 },
  );
  const ways = [
    ...NAVIGATION.filter((way) => !way.isFor || way.isFor(session)),
    ...(session.role === "viewer" ? [] : [{ path: "/submit", label: "New experiment" }]),
    { path: "/tokens", label: "My tokens" },
    { path: "/webhooks", label: "Webhooks" },
  ];
  const typed = search.toLowerCase();
  const pages = typed ? ways.filter((way) => way.label.toLowerCase().includes(typed)) : [];
  const matches: Match[] = [
    ...pages,
    ...(jobs.data?.items ?? []).map((job) => ({ path: `/jobs/${job.id}`, label: job.name, job })),
  ];
  const isWaiting = jobs.isPending || jobs.isPlaceholderData || wanted !== search;
  const found = matches.findIndex((each) => each.path === path);
  const at = found < 0 && matches.length > 0 ? 0 : found;
  const open = (match: Match | undefined) => {
    if (!match) return;
    onClose();
    go(match.path);
  };
  const match = matches[at];
  // biome-ignore lint/correctness/useExhaustiveDependencies: once the answer for the typed text is there
  useEffect(() => {
    if (!isDue || (isWaiting && !jobs.isError)) return;
    setDue(false);
    open(match);
  }, [isDue, isWaiting, jobs.isError, match]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever another match is chosen
  useEffect(() => {
    chosen.current?.scrollIntoView?.({ block: "nearest" });
  }, [at]);
  return (
    <Dialog title="Find a page or a job" onClose={onClose}>
      <div className="finder">
        <Icon name="search" size={14} />
        <input
          data-autofocus=""
          className="input"
          type="search"
          role="combobox"
          aria-label="Page, or name or ID of a job"
          aria-expanded="true"
          aria-controls={list}
          aria-activedescendant={at >= 0 ? `${list}-${at}` : undefined}
          placeholder="Page, or name or ID of a job"
          maxLength={MAX_SEARCH_CHARS}
          value={text}
          onChange={(event) => {
            setText(event.currentTarget.value);
            setPath(null);
            setDue(false);
          }}
          onKeyDown={(event) => {
            // Enter ends the composition of a character first.
            if (event.nativeEvent.isComposing) return;
            if (event.key === "ArrowDown") setPath(matches[Math.min(at + 1, matches.length - 1)]?.path ?? null);
            else if (event.key === "ArrowUp") setPath(matches[Math.max(at - 1, 0)]?.path ?? null);
            else if (event.key !== "Enter") return;
            else if (match && !match.job) open(match);
            else setDue(true);
            event.preventDefault();
          }}
        />
      </div>
      <div className="finder-list" role="listbox" id={list} aria-label="Matches">
        {matches.map((each, index) => (
          // biome-ignore lint/a11y/useFocusableInteractive: the field keeps the focus, and names the chosen option
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field has the keys
          <div
            key={each.path}
            id={`${list}-${index}`}
            ref={index === at ? chosen : null}
            role="option"
            aria-selected={index === at}
            className="menu-item"
            onClick={() => open(each)}
          >
            <span className="grow cut">
              {each.label} {each.job && <span className="quiet">{each.job.owner}</span>}
            </span>
            {each.job && (
              <>
                <span className="quiet small">
                  <Ago time={each.job.submitted_at} />
                </span>
                <StageBadge stage={each.job.stage} />
              </>
            )}
          </div>
        ))}
      </div>
      <div className="quiet small" role="status">
        {jobs.isError
          ? "Jobs cannot be searched now."
          : matches.length === 0 && !isWaiting && (typed ? "Nothing matches." : "No jobs yet.")}
      </div>
    </Dialog>
  );
}

function KeyList({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl className="keys">
        {KEYS.map(({ keys, does }) => (
          <div key={does}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
