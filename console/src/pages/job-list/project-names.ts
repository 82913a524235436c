/** Names of projects by their ids. */

import { useMemo } from "react";
import { useAsk } from "@/api/queries";
import { MAX_PROJECTS } from "@/pages/projects/project-data";

/** Return the names of all projects that one may see; empty until they are known. */
export function useProjectNames(): ReadonlyMap<string, string> {
  const projects = useAsk(["projects"], "/projects", { query: { limit: MAX_PROJECTS } }, { fresh_s: 60 });
  return useMemo(
    () => new Map((projects.data?.items ?? []).map((project) => [project.id, project.name])),
    [projects.data],
  );
}
