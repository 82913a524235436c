/** Projects, training definitions and experiments as the server tells them, and what several pages do with them. */

import { useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { Problem } from "@/api/problems";
import { type Area, useAsk } from "@/api/queries";
import type { components } from "@/api/schema";
import type { Session } from "@/session/session";

type Schemas = components["schemas"];
export type Project = Schemas["Project"];
export type Definition = Schemas["DefinitionTold"];
export type Experiment = Schemas["Experiment"];
export type FrameworkTold = Schemas["FrameworkTold"];
export type AccessRequest = Schemas["AccessRequest"];
export type DefinitionBody = Schemas["DefinitionBody"];
export type Distributed = Schemas["Distributed"];

/** What is wrong, by the name of the field. */
export type FieldErrors = Readonly<Record<string, string>>;

export const MAX_PROJECTS = 1000;

export function useProjects() {
  return useAsk(["projects"], "/projects", { query: { limit: MAX_PROJECTS } }, { every_s: 60 });
}

/** The requests for access that the user has sent or received. */
export function useAccessRequests() {
  return useAsk(["projects", "access"], "/access-requests", {}, { every_s: 60 });
}

/** The users whom the user can ask for access. */
export function useProjectOwners() {
  return useAsk(["projects", "owners"], "/project-owners", {}, { every_s: 60 });
}

export function useProject(project: string) {
  return useAsk(["projects", project], "/projects/{project}", { path: { project } }, { isOn: project !== "" });
}

export function useDefinitions(project: string) {
  const asked = { path: { project } };
  return useAsk(["definitions", project], "/projects/{project}/definitions", asked, { isOn: project !== "" });
}

export function useExperiments(project: string) {
  const asked = { path: { project } };
  return useAsk(["experiments", project], "/projects/{project}/experiments", asked, { isOn: project !== "" });
}

export function useFrameworks() {
  return useAsk(["settings", "frameworks"], "/frameworks", {}, { fresh_s: 600 });
}

/** Return how to say that answers about something are old. */
export function useOutdate(): (...areas: Area[]) => Promise<void> {
  const queries = useQueryClient();
  return useCallback(
    async (...areas) => {
      await Promise.all(areas.map((area) => queries.invalidateQueries({ queryKey: [area] })));
    },
    [queries],
  );
}

/** Return whether who is logged in may add to a project and run what is in it; the server decides in any case. */
export function mayAdd(session: Session, project: Pick<Project, "owner" | "members">): boolean {
  if (session.role === "viewer") return false;
  return session.role === "admin" || project.owner === session.name || project.members.includes(session.name);
}

/** Return whether who is logged in may change or delete a project. */
export function mayManage(session: Session, project: Pick<Project, "owner">): boolean {
  return session.role === "admin" || (session.role === "user" && project.owner === session.name);
}

/** Return what the server says of single fields, by their names. */
export function fieldErrorsOf(thrown: unknown): FieldErrors {
  if (!(thrown instanceof Problem)) return {};
  const found: Record<string, string> = {};
  for (const { field, message } of thrown.fields) {
    const name = field.replace(/^body\./, "").split(".")[0] ?? "";
    if (name && name !== "body") found[name] ??= message;
  }
  return found;
}

/** Return the names in a line, apart by commas or spaces; each once. */
export function readNames(line: string): string[] {
  return [...new Set(line.split(/[\s,;]+/).filter(Boolean))];
}
