/** The settings of the server and what they mean: for administrators, to read. They are changed where it is started. */

import { useMemo } from "react";
import { useAsk } from "@/api/queries";
import type { components } from "@/api/schema";
import { Answered, Empty, NoPermission } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { useQueryValue } from "@/router/router";
import { useSession } from "@/session/session";
import "@/pages/projects/projects.css";
import "./settings.css";

type Setting = components["schemas"]["Setting"];

/** Return the value of a setting as it is written in `legato.toml`. */
export function sayValue(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value || '""' : JSON.stringify(value);
}

const COLUMNS: Column<Setting>[] = [
  {
    name: "name",
    title: "Setting",
    width: 200,
    grows: 1,
    sortBy: (setting) => setting.name,
    show: (setting) => <code>{setting.name}</code>,
  },
  {
    name: "value",
    title: "Value",
    width: 150,
    grows: 2,
    show: (setting) => (
      <code className="settings-value" title={sayValue(setting.value)}>
        {sayValue(setting.value)}
      </code>
    ),
  },
  {
    name: "meaning",
    title: "Meaning",
    width: 220,
    grows: 5,
    leaves: 1,
    show: (setting) => <div className="settings-meaning soft">{setting.meaning}</div>,
  },
];
const keyOf = (setting: Setting) => setting.name;

/** The page. */
export default function SettingsPage() {
  const session = useSession();
  const isAdmin = session.role === "admin";
  const asked = useAsk(["settings", "config"], "/config", {}, { isOn: isAdmin, fresh_s: 60 });
  const [contains, setContains] = useQueryValue("q");
  if (!isAdmin) {
    return (
      <div className="page">
        <div className="page-head">
          <h1>Settings</h1>
        </div>
        <NoPermission>Only administrators see the settings of the server.</NoPermission>
      </div>
    );
  }
  return (
    <div className="page page-full">
      <div className="page-head">
        <h1>Settings</h1>
        <input
          className="input input-small list-search"
          type="search"
          aria-label="Search settings"
          placeholder="Search"
          value={contains}
          onChange={(event) => setContains(event.currentTarget.value)}
        />
      </div>
      <p className="soft">
        As the server was started. They are changed in <code>legato.toml</code> in its home, or with{" "}
        <code>legato up --set</code>, and hold from the next start on.
      </p>
      <Answered asked={asked} what="the settings">
        {(answer) => <Settings settings={answer.items} contains={contains} />}
      </Answered>
    </div>
  );
}

function Settings({ settings, contains }: { settings: readonly Setting[]; contains: string }) {
  const shown = useMemo(() => {
    const sought = contains.toLowerCase();
    return settings.filter((one) => `${one.name} ${sayValue(one.value)} ${one.meaning}`.toLowerCase().includes(sought));
  }, [settings, contains]);
  return (
    <section className="card list-card" aria-label="Settings">
      <Table
        label="Settings"
        rows={shown}
        columns={COLUMNS}
        keyOf={keyOf}
        rowHeight={52}
        empty={<Empty icon="search" title="No setting is called so" />}
      />
    </section>
  );
}
