/** The settings of the server and what they mean: for administrators, to read. They are changed where it is started. */

import { useMemo } from "react";
import { useAsk } from "@/api/queries";
import type { components } from "@/api/schema";
import { SearchField } from "@/parts/field";
import { Answered, Empty, NoPermission } from "@/parts/states";
import { useQueryValue } from "@/router/router";
import { useSession } from "@/session/session";
import "@/pages/projects/projects.css";
import "./settings.css";

type Setting = components["schemas"]["Setting"];

/** Return the value of a setting as people read it; a list with its parts one after the other. */
export function sayValue(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value || '""';
  if (!Array.isArray(value)) return JSON.stringify(value);
  return value.length ? value.map(sayValue).join(", ") : "none";
}

/** Show a meaning: what stands between backticks is code. */
export function Meaning({ text }: { text: string }) {
  return <>{text.split("`").map((part, place) => (place % 2 ? <code key={place}>{part}</code> : part))}</>;
}

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
        <NoPermission>Only administrators can see the settings of the server.</NoPermission>
      </div>
    );
  }
  return (
    <div className="page">
      <div className="page-head">
        <h1>Settings</h1>
        <SearchField label="Search settings" value={contains} onValue={setContains} />
      </div>
      <p className="soft">
        Settings of the running server. To change one, edit the file that the server was started with (
        <code>--config</code>; without it, <code>legato.toml</code> in its home directory), or use{" "}
        <code>legato up --set</code>, then restart the server.
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
  if (shown.length === 0) return <Empty icon="search" title="No matching setting" />;
  return (
    <section className="card" aria-label="Settings">
      <table className="settings-table">
        <thead>
          <tr>
            <th scope="col">Setting</th>
            <th scope="col">Value</th>
            <th scope="col">Description</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((setting) => (
            <tr key={setting.name}>
              <th scope="row">
                <code>{setting.name}</code>
              </th>
              <td>
                <code className="settings-value">{sayValue(setting.value)}</code>
              </td>
              <td className="soft">
                <Meaning text={setting.meaning} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
