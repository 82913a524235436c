/** One job: how it is, its charts, logs, reasons, files, what it was made from, and how to do the same elsewhere. */

import { useState } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { Answered } from "@/parts/states";
import { TabPanel, Tabs } from "@/parts/tabs";
import { type PageProps, useQueryValue } from "@/router/router";
import { ChartsTab } from "./charts-tab";
import { CodeTab } from "./code-tab";
import { DefinitionTab } from "./definition-tab";
import { FilesTab } from "./files-tab";
import { JobHeader } from "./header";
import { LogsTab } from "./logs/logs-tab";
import "./job.css";
import { WhyTab } from "./why-tab";

const ASK_EVERY_S = 2;

const TABS = [
  { name: "charts", label: "Charts", page: ChartsTab },
  { name: "logs", label: "Logs", page: LogsTab },
  { name: "why", label: "Why", page: WhyTab },
  { name: "files", label: "Files", page: FilesTab },
  { name: "definition", label: "Definition", page: DefinitionTab },
  { name: "code", label: "As code", page: CodeTab },
] as const;

/** The page. */
export default function JobPage({ names }: PageProps) {
  const id = names.job ?? "";
  const job = useAsk(["job", id], "/jobs/{job}", { path: { job: id } }, { every_s: ASK_EVERY_S });
  return (
    <div className="page">
      <Answered asked={job} what="this job">
        {(found) => <JobViews key={found.id} job={found} />}
      </Answered>
    </div>
  );
}

/** Return the tab on which a job opens. */
export function firstTab(job: Job): string {
  return job.stage === "failed" && !job.progress?.step ? "logs" : "charts";
}

function JobViews({ job }: { job: Job }) {
  // Of what failed before its first step there is nothing to draw: its logs say why. What fails while it is looked at
  // stays on the tab that is read.
  const [first] = useState(() => firstTab(job));
  const [chosen, choose] = useQueryValue("tab", first);
  const tab = TABS.find((each) => each.name === chosen) ?? TABS[0];
  const Shown = tab.page;
  return (
    <>
      <JobHeader job={job} />
      <Tabs label="Views of this job" tabs={TABS} chosen={tab.name} onChoose={choose} />
      <TabPanel chosen={tab.name}>
        <Shown job={job} />
      </TabPanel>
    </>
  );
}
