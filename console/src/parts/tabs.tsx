/** Tabs: one of several views of the same thing. Arrows go from one to the next. */

import type { KeyboardEvent, ReactNode } from "react";
import "./tabs.css";

export interface Tab {
  name: string;
  label: ReactNode;
}

interface TabsProps {
  label: string;
  tabs: readonly Tab[];
  chosen: string;
  onChoose: (name: string) => void;
}

/** The row of tabs; what the chosen one shows stands in a TabPanel. */
export function Tabs({ label, tabs, chosen, onChoose }: TabsProps) {
  const press = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const place = tabs.findIndex((tab) => tab.name === chosen);
    const next = tabs[(place + step + tabs.length) % tabs.length];
    if (!next) return;
    onChoose(next.name);
    document.getElementById(`tab-${next.name}`)?.focus();
  };
  return (
    <div className="tabs" role="tablist" aria-label={label} onKeyDown={press}>
      {tabs.map((tab) => (
        <button
          key={tab.name}
          type="button"
          role="tab"
          id={`tab-${tab.name}`}
          aria-selected={tab.name === chosen}
          aria-controls={tab.name === chosen ? `panel-${tab.name}` : undefined}
          tabIndex={tab.name === chosen ? 0 : -1}
          className="tab"
          onClick={() => onChoose(tab.name)}
        >
          {tab.label}
        </button>
      ))}
    </div>
  );
}

/** What the chosen tab shows. */
export function TabPanel({ chosen, children }: { chosen: string; children: ReactNode }) {
  return (
    <div role="tabpanel" id={`panel-${chosen}`} aria-labelledby={`tab-${chosen}`}>
      {children}
    </div>
  );
}
