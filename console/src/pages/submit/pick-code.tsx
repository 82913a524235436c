/** Where code is picked: a zip, files or a folder, by button or dropped; or a directory on the machines. */

import { type DragEvent, useId, useRef, useState } from "react";
import { countOf, formatBytes } from "@/format/numbers";
import { Button } from "@/parts/button";
import { TextField } from "@/parts/field";
import { Icon } from "@/parts/icon";
import { Segments } from "@/parts/segments";
import type { CodeFrom, DefinitionDraft } from "./draft";
import { readDropped } from "./packing/drop";
import { type Picked, pack } from "./packing/pack";

interface PickProps {
  draft: DefinitionDraft;
  onDraft: (change: Partial<DefinitionDraft>) => void;
  /** Told when files begin to be packed, and when they are. */
  onPacking: (isPacking: boolean) => void;
  wrongCode: string | undefined;
  wrongDirectory: string | undefined;
}

/** The field for the code. */
export function PickCode({ draft, onDraft, onPacking, wrongCode, wrongDirectory }: PickProps) {
  const choices = [
    { value: "upload", label: "Upload" },
    { value: "directory", label: "Directory" },
    ...(draft.keptCode ? [{ value: "kept", label: "Keep current code" }] : []),
  ];
  return (
    <div className="field">
      <div className="row row-wrap">
        <span className="field-label grow">Training source code</span>
        <Segments
          label="Code source"
          choices={choices}
          chosen={draft.codeFrom}
          onChoose={(value) => onDraft({ codeFrom: value as CodeFrom })}
        />
      </div>
      {draft.codeFrom === "upload" && (
        <Upload draft={draft} onDraft={onDraft} onPacking={onPacking} wrong={wrongCode} />
      )}
      {draft.codeFrom === "kept" && (
        <>
          <p className="soft">
            Same code as the definition that you copied{" "}
            <code title={draft.keptCode ?? ""}>{draft.keptCode?.slice(0, 12)}</code>
          </p>
          {wrongCode && <p className="field-wrong">{wrongCode}</p>}
        </>
      )}
      {draft.codeFrom === "directory" && (
        <TextField
          label={<span className="only-heard">Directory on the machines</span>}
          className="input mono"
          placeholder="/home/anna/mnist"
          spellCheck={false}
          hint="An absolute path that exists on every machine. The program runs there."
          wrong={wrongDirectory ?? wrongCode}
          value={draft.directory}
          onValue={(directory) => onDraft({ directory })}
        />
      )}
    </div>
  );
}

type UploadProps = Pick<PickProps, "draft" | "onDraft" | "onPacking"> & { wrong: string | undefined };

function Upload({ draft, onDraft, onPacking, wrong }: UploadProps) {
  const files = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  const id = useId();
  const [isOver, setOver] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const take = async (read: () => Promise<{ picked: readonly Picked[]; isFolder: boolean }>) => {
    setBusy(true);
    onPacking(true);
    setProblem(null);
    try {
      const { picked, isFolder } = await read();
      if (picked.length > 0) onDraft({ packed: await pack(picked, isFolder), codeFrom: "upload" });
    } catch (thrown) {
      setProblem(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setBusy(false);
    onPacking(false);
  };
  const takeInput = (input: HTMLInputElement, isFolder: boolean) => {
    const picked = [...(input.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
    // The same file can be picked again after it was changed.
    input.value = "";
    void take(async () => ({ picked, isFolder }));
  };
  // Fields that are held take no files either: what is being sent stays as it was shown.
  const takesFiles = (event: DragEvent) => !isBusy && event.currentTarget.closest("fieldset[disabled]") === null;
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    if (!takesFiles(event)) return;
    const reading = readDropped(event.dataTransfer);
    void take(() => reading);
  };
  const { packed } = draft;
  const said = problem ?? wrong;
  return (
    <>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the buttons inside do the same for who drops nothing */}
      <div
        className="drop"
        data-over={isOver ? "" : undefined}
        data-wrong={said ? "" : undefined}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(takesFiles(event));
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        {packed ? (
          <div className="row drop-packed">
            <Icon name={packed.names ? "folder" : "file"} size={16} />
            <strong className="cut">{packed.title}</strong>
            <span className="quiet nowrap">
              {packed.names && `${countOf(packed.names.length, "file")}, `}
              {formatBytes(packed.bytes.length)}
              {packed.numLeft > 0 && `, ${packed.numLeft} excluded`}
            </span>
          </div>
        ) : (
          <span className="quiet">Drop a zip, files or a folder here, or</span>
        )}
        <div className="row row-wrap">
          <Button
            isSmall
            icon="file"
            isBusy={isBusy}
            aria-describedby={`${id}-said`}
            onClick={() => files.current?.click()}
          >
            {packed ? "Choose another file" : "Browse files"}
          </Button>
          <Button isSmall icon="folder" disabled={isBusy} onClick={() => folder.current?.click()}>
            {packed ? "Choose another folder" : "Browse folder"}
          </Button>
        </div>
        <input
          ref={files}
          type="file"
          multiple
          hidden
          aria-label="Files or an archive with the code"
          data-pick="files"
          onChange={(event) => takeInput(event.currentTarget, false)}
        />
        <input
          ref={folder}
          type="file"
          hidden
          aria-label="Folder with the code"
          data-pick="folder"
          {...{ webkitdirectory: "" }}
          onChange={(event) => takeInput(event.currentTarget, true)}
        />
      </div>
      <div id={`${id}-said`} className={said ? "field-wrong" : "field-hint"} role={said ? "alert" : undefined}>
        {said ?? "A .zip, .tar or .tar.gz file is uploaded unchanged. Other files and folders are packed into a zip."}
      </div>
    </>
  );
}
