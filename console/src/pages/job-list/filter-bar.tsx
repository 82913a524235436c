/** The filter above the table of jobs. It stands in the address, so that a link shows the same; names for it are kept in this browser. */

import { useMemo, useState } from "react";
import type { Job } from "@/api/types";
import { Button } from "@/parts/button";
import { Dialog } from "@/parts/dialog";
import { TextField } from "@/parts/field";
import { Icon } from "@/parts/icon";
import { Menu, type MenuItem } from "@/parts/menu";
import { go, readRoute, useQueryValue, useRoute } from "@/router/router";
import { useSession } from "@/session/session";
import { FILTER_NAMES, type Group, groupOf, type JobsFilter, readSaved, type SavedFilter, writeSaved } from "./filter";

const CHIPS: readonly { group: Group; label: string }[] = [
  { group: "all", label: "All" },
  { group: "running", label: "Running" },
  { group: "waiting", label: "Waiting" },
  { group: "ended", label: "Ended" },
];

interface FilterBarProps {
  filter: JobsFilter;
  projects: ReadonlyMap<string, string>;
  jobs: readonly Job[];
  /** Opens the choice of columns. */
  onColumns: () => void;
  /** How many columns the user has added. */
  numExtras: number;
}

/** The bar. */
export function FilterBar({ filter, projects, jobs, onColumns, numExtras }: FilterBarProps) {
  const session = useSession();
  const { query } = useRoute();
  const group = groupOf(filter);
  const owners = useMemo(() => listNames(jobs, (job) => job.owner, filter.owner), [jobs, filter.owner]);
  const queues = useMemo(() => listNames(jobs, (job) => job.queue, filter.queue), [jobs, filter.queue]);
  const isFiltered = FILTER_NAMES.some((name) => query.has(name));
  return (
    <search className="jobs-filter">
      <fieldset className="jobs-chips">
        <legend className="only-heard">State</legend>
        {CHIPS.map((chip) => (
          <Button
            key={chip.group}
            isSmall
            look="plain"
            aria-pressed={group === chip.group}
            onClick={() => setQuery("stage", chip.group === "all" ? null : chip.group)}
          >
            {chip.label}
          </Button>
        ))}
        <Button
          isSmall
          look="plain"
          icon="user"
          aria-pressed={filter.owner === session.name}
          onClick={() => setQuery("owner", filter.owner === session.name ? null : session.name)}
        >
          Mine
        </Button>
      </fieldset>
      <SearchBox text={filter.text} />
      <Pick name="owner" all="All owners" value={filter.owner} choices={owners.map((name) => [name, name])} />
      {projects.size > 0 && <Pick name="project" all="All projects" value={filter.project} choices={[...projects]} />}
      {(queues.length > 1 || filter.queue) && (
        <Pick name="queue" all="All queues" value={filter.queue} choices={queues.map((name) => [name, name])} />
      )}
      {filter.label && (
        <span className="chip">
          {filter.label}
          <Button icon="cross" look="plain" isSmall aria-label="Clear label" onClick={() => setQuery("label", null)} />
        </span>
      )}
      {isFiltered && (
        <Button isSmall look="plain" icon="cross" onClick={() => go("/jobs")}>
          Clear
        </Button>
      )}
      <span className="jobs-saved row">
        <Button isSmall look="plain" icon="columns" onClick={onColumns}>
          {numExtras ? `Columns (+${numExtras})` : "Columns"}
        </Button>
        <SavedFilters isFiltered={isFiltered} />
      </span>
    </search>
  );
}

function setQuery(name: string, value: string | null): void {
  const { path, query } = readRoute(window.location.hash);
  query.delete(name);
  if (value) query.set(name, value);
  go(path, query, true);
}

function listNames(jobs: readonly Job[], nameOf: (job: Job) => string, chosen: string): string[] {
  return [...new Set([...jobs.map(nameOf), ...(chosen ? [chosen] : [])])].sort();
}

function SearchBox({ text }: { text: string }) {
  const [, setText] = useQueryValue("text");
  return (
    <div className="jobs-search">
      <Icon name="search" size={14} />
      <input
        className="input input-small"
        type="search"
        aria-label="Search jobs"
        placeholder="Search name, ID, reason"
        value={text}
        onChange={(event) => setText(event.currentTarget.value || null)}
      />
    </div>
  );
}

interface PickProps {
  name: string;
  all: string;
  value: string;
  choices: readonly (readonly [string, string])[];
}

function Pick({ name, all, value, choices }: PickProps) {
  return (
    <select
      className="input input-small jobs-pick"
      aria-label={all}
      value={value}
      onChange={(event) => setQuery(name, event.currentTarget.value)}
    >
      <option value="">{all}</option>
      {choices.map(([id, label]) => (
        <option key={id} value={id}>
          {label}
        </option>
      ))}
    </select>
  );
}

function SavedFilters({ isFiltered }: { isFiltered: boolean }) {
  const [saved, setSaved] = useState(readSaved);
  const [isNaming, setNaming] = useState(false);
  const { query } = useRoute();
  const keep = (next: SavedFilter[]) => {
    writeSaved(next);
    setSaved(next);
  };
  const now = query.toString();
  const items: (MenuItem | "line" | { head: string })[] = saved.map((each) => ({
    label: each.name,
    isChosen: each.query === now,
    onPick: () => go("/jobs", new URLSearchParams(each.query)),
  }));
  const present = saved.find((each) => each.query === now);
  if (!saved.length) items.push({ head: "No saved filters in this browser" });
  items.push("line", {
    label: "Save this filter…",
    icon: "star",
    isOff: !isFiltered || present !== undefined,
    onPick: () => setNaming(true),
  });
  if (present) {
    items.push({
      label: `Delete ${present.name}`,
      icon: "trash",
      onPick: () => keep(saved.filter((each) => each !== present)),
    });
  }
  return (
    <>
      <Menu label="Saved" icon="star" look="plain" isSmall items={items} />
      {isNaming && (
        <NameDialog
          onClose={() => setNaming(false)}
          onName={(name) => keep([...saved.filter((each) => each.name !== name), { name, query: now }])}
        />
      )}
    </>
  );
}

function NameDialog({ onClose, onName }: { onClose: () => void; onName: (name: string) => void }) {
  const [name, setName] = useState("");
  return (
    <Dialog
      title="Save this filter"
      action="Save"
      isBlocked={!name.trim()}
      onClose={onClose}
      onDo={() => onName(name.trim())}
    >
      <TextField
        label="Name"
        data-autofocus=""
        value={name}
        onValue={setName}
        maxLength={60}
        hint="Saved in this browser. To share a filter, copy the URL of the page."
      />
    </Dialog>
  );
}
