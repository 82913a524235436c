/** The window that makes a project or changes one. */

import { useState } from "react";
import { ask } from "@/api/client";
import { useAsk } from "@/api/queries";
import { Dialog } from "@/parts/dialog";
import { AreaField, SelectField, TextField } from "@/parts/field";
import { useSession } from "@/session/session";
import { findUnknown, MembersField, useUserNames } from "./members-field";
import { type FieldErrors, fieldErrorsOf, type Project, readNames, useOutdate } from "./project-data";

interface DialogProps {
  /** To change; a new one without it. */
  project?: Project;
  onDone: (project: Project) => void;
  onClose: () => void;
}

/** The dialog. */
export function ProjectDialog({ project, onDone, onClose }: DialogProps) {
  const [name, setName] = useState(project?.name ?? "");
  const [description, setDescription] = useState(project?.description ?? "");
  const [queue, setQueue] = useState(project?.queue ?? "default");
  const [members, setMembers] = useState<readonly string[]>(project?.members ?? []);
  const [typed, setTyped] = useState("");
  const [wrong, setWrong] = useState<FieldErrors>({});
  const queues = useAsk(["queues"], "/queues");
  const outdate = useOutdate();
  const names = [...new Set([queue, ...(queues.data?.items ?? []).map((one) => one.name)])];
  const session = useSession();
  const owner = project?.owner ?? session.name;
  const allMembers = [...new Set([...members, ...readNames(typed)])];
  const unknown = findUnknown(allMembers, useUserNames());
  const save = async () => {
    const body = { name: name.trim(), description: description.trim(), queue, members: allMembers };
    try {
      const made = project
        ? await ask("patch", "/projects/{project}", { path: { project: project.id }, body })
        : await ask("post", "/projects", { body });
      await outdate("projects");
      onDone(made);
    } catch (thrown) {
      setWrong(fieldErrorsOf(thrown));
      throw thrown;
    }
  };
  return (
    <Dialog
      title={project ? `Edit ${project.name}` : "New project"}
      action={project ? "Save" : "Create"}
      isBlocked={!name.trim() || unknown !== null}
      onDo={save}
      onClose={onClose}
    >
      <TextField label="Name" required maxLength={100} wrong={wrong.name} value={name} onValue={setName} />
      <AreaField label="Description" rows={2} wrong={wrong.description} value={description} onValue={setDescription} />
      <SelectField
        label="Queue"
        choices={names.map((one) => ({ value: one, label: one }))}
        hint="Jobs of this project go to this queue."
        wrong={wrong.queue}
        value={queue}
        onValue={setQueue}
      />
      <MembersField
        owner={owner}
        hint="Members can view and edit the project and start its jobs."
        members={members}
        onMembers={(next) => {
          setMembers(next);
          setWrong({});
        }}
        typed={typed}
        onTyped={setTyped}
        wrong={wrong.members}
      />
    </Dialog>
  );
}
