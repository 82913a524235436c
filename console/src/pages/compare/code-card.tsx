/** The code of two of the compared jobs, line by line. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Job, Spec } from "@/api/types";
import { countOf } from "@/format/numbers";
import { tellApart } from "@/jobs/names";
import { Button } from "@/parts/button";
import { SelectField } from "@/parts/field";
import { ErrorState, Loading, Note } from "@/parts/states";
import { maySubmit, useSession } from "@/session/session";
import { compareCode, type FileDiff, fetchCode } from "./code-diff";
import type { Hunk } from "./line-diff";

/** Lines of a file that are shown at first, and that a click adds. */
const MAX_LINES = 400;
const MORE_LINES = 2000;
/** Files are open until they show so many lines. */
const MAX_OPEN_LINES = 2000;
/** Files that are listed at first, and that a click adds. */
const MAX_FILES = 100;

interface WithCode {
  job: Job;
  spec: Spec;
}

/** The card, with a choice of which two. */
export function CodeCard({ compared: given }: { compared: readonly WithCode[] }) {
  // The older one first: what was changed since.
  const compared = given.toSorted((one, other) => one.job.submitted_at - other.job.submitted_at);
  const [first, setFirst] = useState("");
  const [second, setSecond] = useState("");
  const find = (id: string, place: number) => compared.find(({ job }) => job.id === id) ?? compared[place];
  const [before, after] = [find(first, 0), find(second, 1)];
  if (!before || !after) return null;
  const called = tellApart(compared.map(({ job }) => job));
  const choices = compared.map(({ job }) => ({ value: job.id, label: called.get(job.id) ?? job.name }));
  return (
    <section className="card" aria-label="Code">
      <div className="card-head">
        <h2>Code</h2>
        {compared.length === 2 ? (
          <span className="soft">
            From {called.get(before.job.id)} to {called.get(after.job.id)}
          </span>
        ) : (
          <div className="row row-wrap code-pair">
            <SelectField label="From" choices={choices} value={before.job.id} onValue={setFirst} />
            <SelectField label="To" choices={choices} value={after.job.id} onValue={setSecond} />
          </div>
        )}
      </div>
      <div className="card-body stack">
        <CodeDiff key={`${before.job.id} ${after.job.id}`} before={before} after={after} />
      </div>
    </section>
  );
}

function CodeDiff({ before, after }: { before: WithCode; after: WithCode }) {
  const session = useSession();
  const [isWanted, setWanted] = useState(false);
  const why = [before, after].map((one) => sayMissing(one, maySubmit(session))).find((told) => told !== null);
  const [old, now] = [before.job.code, after.job.code];
  const isSame = old !== null && old === now;
  const asked = useQuery({
    queryKey: ["settings", "code-diff", old, now],
    queryFn: async ({ signal }) => {
      const [one, other] = await Promise.all([fetchCode(old ?? "", signal), fetchCode(now ?? "", signal)]);
      return compareCode(one, other);
    },
    enabled: isWanted && !why && !isSame,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    retry: false,
  });
  if (before.job.id === after.job.id) return <p className="soft">Choose two different jobs.</p>;
  if (isSame) return <p className="soft">Both jobs run the same code.</p>;
  if (why) return <Note>{why}</Note>;
  if (!isWanted) {
    return (
      <div>
        <Button icon="file" onClick={() => setWanted(true)}>
          Show code differences
        </Button>
      </div>
    );
  }
  if (asked.error) return <ErrorState error={asked.error} what="the code" retry={() => void asked.refetch()} />;
  if (!asked.data) return <Loading what="Comparing the code" numLines={4} />;
  return <Files found={asked.data} />;
}

/** Return why the code of a job cannot be compared; null: it can. */
export function sayMissing({ job, spec }: WithCode, mayRead: boolean): string | null {
  if (spec.directory !== null) {
    return `${job.name} runs in a directory of the server (${spec.directory}). Legato keeps no copy of its files, so they cannot be compared.`;
  }
  if (!mayRead) return "Viewers cannot read code.";
  if (job.code !== null) return null;
  return `You cannot read the code of ${job.name}: it belongs to ${job.owner}, and no training definition of a project of yours has it. Ask ${job.owner} to make a training definition with it in a project that you both are in.`;
}

function Files({ found }: { found: readonly FileDiff[] }) {
  const [numShown, setNumShown] = useState(MAX_FILES);
  if (!found.length) return <p className="soft">All files are equal; only the archives differ.</p>;
  const numDiffer = found.filter((file) => file.kind !== "not compared").length;
  let numLines = 0;
  return (
    <>
      <p className="soft">
        {countOf(numDiffer, "file differs", "files differ")}
        {numDiffer < found.length && `, ${found.length - numDiffer} not compared`}.
      </p>
      {found.slice(0, numShown).map((file) => {
        numLines += Math.min(countLines(file), MAX_LINES);
        return <FileCard key={file.path} file={file} isOpenFirst={numLines <= MAX_OPEN_LINES} />;
      })}
      {found.length > numShown && (
        <Button isSmall onClick={() => setNumShown(numShown + MAX_FILES)}>
          Show {Math.min(found.length - numShown, MAX_FILES)} more files
        </Button>
      )}
    </>
  );
}

function countLines(file: FileDiff): number {
  return file.hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
}

function FileCard({ file, isOpenFirst }: { file: FileDiff; isOpenFirst: boolean }) {
  const [isOpen, setOpen] = useState(isOpenFirst);
  const [numShown, setNumShown] = useState(MAX_LINES);
  const num = countLines(file);
  const shown = useMemo(() => cut(file.hunks, numShown), [file.hunks, numShown]);
  const count = (kind: string) =>
    file.hunks.reduce((sum, hunk) => sum + hunk.lines.filter((line) => line.kind === kind).length, 0);
  return (
    <details className="code-file" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <code>{file.path}</code>{" "}
        <span className="quiet small">
          {file.kind}
          {num > 0 && `, ${countOf(count("new"), "line")} added, ${countOf(count("gone"), "line")} removed`}
        </span>
      </summary>
      {file.note && <p className="soft code-note">{file.note}</p>}
      {num > 0 && isOpen && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse scrolls it by keys
        <div className="code-box" tabIndex={0} role="group" aria-label={`Differences of ${file.path}`}>
          <table className="code-lines">
            <tbody>
              {shown.map((hunk) => (
                <HunkRows key={`${hunk.before} ${hunk.after}`} hunk={hunk} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {num > numShown && (
        <Button isSmall onClick={() => setNumShown(numShown + MORE_LINES)}>
          Show {Math.min(num - numShown, MORE_LINES)} more lines
        </Button>
      )}
    </details>
  );
}

function cut(hunks: readonly Hunk[], numShown: number): Hunk[] {
  let left = numShown;
  return hunks.flatMap((hunk) => {
    const lines = hunk.lines.slice(0, left);
    left -= lines.length;
    return lines.length ? [{ ...hunk, lines }] : [];
  });
}

const SIGNS = { same: " ", gone: "−", new: "+" } as const;
const WORDS = { same: "", gone: "removed: ", new: "added: " } as const;

function HunkRows({ hunk }: { hunk: Hunk }) {
  let [before, after] = [hunk.before, hunk.after];
  return (
    <>
      <tr className="code-gap">
        <td colSpan={3} className="quiet small">
          Line {hunk.before} → {hunk.after}
        </td>
      </tr>
      {hunk.lines.map((line) => {
        const [old, now] = [line.kind === "new" ? null : before++, line.kind === "gone" ? null : after++];
        return (
          <tr key={`${old} ${now}`} className={`code-${line.kind}`}>
            <td className="code-number">{old}</td>
            <td className="code-number">{now}</td>
            <td>
              <span className="only-heard">{WORDS[line.kind]}</span>
              <span aria-hidden="true">{SIGNS[line.kind]} </span>
              {line.text}
            </td>
          </tr>
        );
      })}
    </>
  );
}
