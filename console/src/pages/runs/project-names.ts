/** Names of projects by their ids. */

import { useMemo } from "react";
import { useAsk } from "@/api/queries";

/** Return the names of all projects that one may see; empty until they are known. */
export function useProjectNames(): ReadonlyMap<string, string> {
  const projects = useAsk(["projects"], "/projects", {}, { fresh_s: 60 });
  return useMemo(
    () => new Map((projects.data?.items ?? []).map((project) => [project.id, project.name])),
    [projects.data],
  );
}
