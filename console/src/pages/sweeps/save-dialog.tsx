/** The window that saves a trial of a sweep as a training definition. */

import { useState } from "react";
import { ask } from "@/api/client";
import type { Sweep, Trial } from "@/api/types";
import { formatValue } from "@/format/numbers";
import { type FieldErrors, fieldErrorsOf, mayAdd, useOutdate, useProjects } from "@/pages/projects/project-data";
import { Dialog } from "@/parts/dialog";
import { SelectField, TextField } from "@/parts/field";
import { Note } from "@/parts/states";
import { useToasts } from "@/parts/toast";
import { useSession } from "@/session/session";
import { metricOf } from "./scatter";
import { bodyOfTrial, listUnsaved } from "./sweep-draft";

/** The dialog. */
export function SaveDialog({ sweep, trial, onClose }: { sweep: Sweep; trial: Trial; onClose: () => void }) {
  const [name, setName] = useState(`${sweep.name} best`);
  const [chosen, setChosen] = useState("");
  const [wrong, setWrong] = useState<FieldErrors>({});
  const session = useSession();
  const toasts = useToasts();
  const outdate = useOutdate();
  const projects = (useProjects().data?.items ?? []).filter((one) => mayAdd(session, one));
  const project = projects.find((one) => one.id === chosen) ?? projects[0];
  const unsaved = listUnsaved(sweep.job);
  const environment = Object.keys((sweep.job as { environment?: object | null }).environment ?? {});
  const save = async () => {
    if (!project) return;
    const value = `${sweep.metric.name} ${formatValue(metricOf(trial))}`;
    const description = `trial ${trial.number} of sweep ${sweep.name} (${sweep.id}): ${value}`;
    const body = bodyOfTrial(name.trim(), description, sweep, trial);
    try {
      await ask("post", "/projects/{project}/definitions", { path: { project: project.id }, body });
      await outdate("definitions");
      toasts.tell(`${name.trim()} is a training definition of ${project.name}.`);
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
  };
  return (
    <Dialog
      title={`Save trial ${trial.number} as a training definition`}
      action="Save"
      isBlocked={!name.trim() || !project || unsaved.length > 0}
      typed={`${name} ${project?.id}`}
      onDo={save}
      onClose={onClose}
    >
      <TextField label="Name" maxLength={100} wrong={wrong.name} value={name} onValue={setName} />
      <SelectField
        label="Project"
        choices={projects.map((one) => ({ value: one.id, label: `${one.name} (${one.owner})` }))}
        value={project?.id ?? ""}
        onValue={setChosen}
      />
      {!project && <Note>A training definition belongs to a project. Create one on the page Projects.</Note>}
      {unsaved.length > 0 && (
        <Note tone="warn">
          Training definitions have no field {unsaved.join(", ")}. Open the job of the trial and click Clone instead.
        </Note>
      )}
      {environment.length > 0 && (
        <Note>It will not have the environment variables of the trial: {environment.join(", ")}.</Note>
      )}
    </Dialog>
  );
}
