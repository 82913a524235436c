/** An experiment as it is being written. */

import type { FieldErrors } from "@/pages/projects/project-data";
import { readCount } from "./draft";

export interface ExperimentDraft {
  project: string;
  name: string;
  description: string;
  data: string;
  arguments: string;
  priority: string;
  /** Ids of definitions, by project: those of one cannot go with another. */
  definitions: Readonly<Record<string, readonly string[]>>;
  /** Where the last definition or experiment came from that this was begun with. */
  from: string;
}

export const EMPTY: ExperimentDraft = {
  project: "",
  name: "",
  description: "",
  data: "",
  arguments: "",
  priority: "",
  definitions: {},
  from: "",
};

/** Return what can be seen to be wrong without asking the server. */
export function checkExperiment(draft: ExperimentDraft, numDefinitions: number): FieldErrors {
  const wrong: Record<string, string> = {};
  if (!draft.name.trim()) wrong.name = "Enter a name.";
  if (numDefinitions === 0) wrong.definitions = "Add at least one training definition.";
  const priority = readCount(draft.priority);
  if (draft.priority.trim() && (priority === null || priority < 1 || priority > 10_000)) {
    wrong.priority = "Enter a whole number from 1 to 10000.";
  }
  return wrong;
}
