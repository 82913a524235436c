/** Which columns the table of jobs has beside its own: notes, labels, metrics and parameters. */

import { useState } from "react";
import { Dialog } from "@/parts/dialog";
import { CheckField, SearchField } from "@/parts/field";
import { ErrorState } from "@/parts/states";
import { type Extra, type Kind, MAX_EXTRAS, nameOf } from "./chosen-columns";

/** From so many names on there is a field to search them. */
const MANY = 12;

interface ColumnsDialogProps {
  chosen: readonly Extra[];
  metrics: readonly string[];
  parameters: readonly string[];
  error: unknown;
  onChoose: (chosen: readonly Extra[]) => void;
  onClose: () => void;
}

/** The dialog. Columns that are chosen but that no job has now stay, so that they can be removed. */
export function ColumnsDialog({ chosen, metrics, parameters, error, onChoose, onClose }: ColumnsDialogProps) {
  const [next, setNext] = useState(chosen);
  const [text, setText] = useState("");
  const names = new Set(next.map(nameOf));
  const isFull = next.length >= MAX_EXTRAS;
  const with_ = (kind: Kind, found: readonly string[]) => [
    ...new Set([...found, ...chosen.filter((one) => one.kind === kind).map((one) => one.of)]),
  ];
  const groups = [
    { title: "Job", extras: [{ kind: "labels", of: "" } as const, { kind: "notes", of: "" } as const] },
    { title: "Metrics (last value)", extras: with_("metric", metrics).map((of) => ({ kind: "metric" as const, of })) },
    { title: "Parameters", extras: with_("parameter", parameters).map((of) => ({ kind: "parameter" as const, of })) },
  ];
  const wanted = text.trim().toLowerCase();
  const fits = (extra: Extra) => !wanted || sayExtra(extra).toLowerCase().includes(wanted);
  const toggle = (extra: Extra, isOn: boolean) =>
    setNext(isOn ? [...next, extra] : next.filter((one) => nameOf(one) !== nameOf(extra)));
  return (
    <Dialog title="Columns" action="Show" onClose={onClose} onDo={() => onChoose(next)}>
      {metrics.length + parameters.length >= MANY && (
        <SearchField label="Search metrics and parameters" value={text} onValue={setText} />
      )}
      {Boolean(error) && <ErrorState error={error} what="metrics and parameters" />}
      {groups.map(({ title, extras }) => (
        <fieldset className="columns-group" key={title}>
          <legend>{title}</legend>
          {extras.filter(fits).map((extra) => (
            <CheckField
              key={nameOf(extra)}
              label={sayExtra(extra)}
              isOn={names.has(nameOf(extra))}
              isOff={isFull && !names.has(nameOf(extra))}
              onValue={(isOn) => toggle(extra, isOn)}
            />
          ))}
          {extras.length === 0 && <p className="quiet small">None of these jobs has any.</p>}
        </fieldset>
      ))}
      <p className="quiet small">
        {isFull
          ? `At most ${MAX_EXTRAS} columns.`
          : "Saved in this browser, and part of the URL of the page. Click the head of a column to sort by it."}
      </p>
    </Dialog>
  );
}

/** Return the title of a column. */
export function sayExtra({ kind, of }: Extra): string {
  return of || (kind === "notes" ? "Notes" : "Labels");
}
