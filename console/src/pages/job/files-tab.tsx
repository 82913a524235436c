/** Files that a job left, and its checkpoints, to download. */

import { API } from "@/api/client";
import { useAsk } from "@/api/queries";
import type { Entry, Job } from "@/api/types";
import { formatBytes, formatCount } from "@/format/numbers";
import { formatFullTime } from "@/format/time";
import { buttonClass } from "@/parts/button";
import { Icon } from "@/parts/icon";
import { Ago } from "@/parts/now";
import { ENDED } from "@/parts/stage";
import { Answered, Empty, NoPermission, Note } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { Link, useQueryValue } from "@/router/router";
import { mayChange, useSession } from "@/session/session";

/** The files. */
export function FilesTab({ job }: { job: Job }) {
  const session = useSession();
  if (!mayChange(session, job.owner) && session.name !== job.owner) {
    return (
      <div className="card">
        <NoPermission>Only {job.owner}, the owner of this job, and administrators can see its files.</NoPermission>
      </div>
    );
  }
  return (
    <div className="files">
      <Checkpoints job={job} />
      <Folder job={job} />
    </div>
  );
}

function download(job: Job, path: string): string {
  return `${API}/jobs/${job.id}/files/${path.split("/").map(encodeURIComponent).join("/")}`;
}

function Checkpoints({ job }: { job: Job }) {
  const asked = useAsk(
    ["job", job.id],
    "/jobs/{job}/checkpoints",
    { path: { job: job.id } },
    { every_s: ENDED.has(job.stage) ? false : 5 },
  );
  return (
    <section className="card">
      <div className="card-head">
        <h2>Checkpoints</h2>
      </div>
      <Answered asked={asked} what="the checkpoints">
        {({ items }) =>
          items.length === 0 ? (
            <p className="card-body soft">
              No checkpoints yet. The job saves one at each pause and stop, and as often as its definition says.
            </p>
          ) : (
            <ul className="files-list">
              {items.map((each) => (
                <li key={each.path}>
                  <Icon name="flag" size={14} />
                  <strong className="number">Step {formatCount(each.step)}</strong>
                  <span className="quiet number">{formatBytes(each.num_bytes)}</span>
                  <span className="quiet grow">
                    <Ago time={each.modified_at} />
                  </span>
                  <a className={buttonClass({ isSmall: true })} href={download(job, each.path)} download>
                    <Icon name="download" size={14} />
                    Download
                  </a>
                </li>
              ))}
            </ul>
          )
        }
      </Answered>
    </section>
  );
}

function Folder({ job }: { job: Job }) {
  const [folder, setFolder] = useQueryValue("folder");
  const query = folder ? { path: folder } : {};
  const asked = useAsk(
    ["job", job.id],
    "/jobs/{job}/files",
    { path: { job: job.id }, query },
    { every_s: ENDED.has(job.stage) ? false : 10, keepsLast: true },
  );
  const columns = makeColumns(job);
  const parts = folder.split("/").filter(Boolean);
  return (
    <section className="card files-folder">
      <div className="card-head">
        <h2>Files</h2>
        <nav className="row small files-path" aria-label="Folder">
          <Link to={`/jobs/${job.id}`} query={{ tab: "files" }}>
            top
          </Link>
          {parts.map((part, place) => (
            <span key={place} className="row">
              /
              <Link to={`/jobs/${job.id}`} query={{ tab: "files", folder: parts.slice(0, place + 1).join("/") }}>
                {part}
              </Link>
            </span>
          ))}
        </nav>
      </div>
      <Answered asked={asked} what="the files">
        {(found) => (
          <>
            {!found.is_complete && (
              <Note tone="warn">
                Some files are not shown: there are more than 10,000, or a name cannot be displayed.
              </Note>
            )}
            <Table
              label="Files"
              rows={sortEntries(found.items)}
              columns={columns}
              keyOf={(entry) => entry.path}
              rowHeight={38}
              onOpen={(entry) => entry.kind === "folder" && setFolder(entry.path)}
              empty={<Empty icon="folder" title="No files yet" />}
            />
          </>
        )}
      </Answered>
    </section>
  );
}

function sortEntries(entries: readonly Entry[]): Entry[] {
  return [...entries].sort(
    (one, other) =>
      Number(other.kind === "folder") - Number(one.kind === "folder") ||
      one.path.localeCompare(other.path, "en", { numeric: true }),
  );
}

function nameOf(entry: Entry): string {
  return entry.path.slice(entry.path.lastIndexOf("/") + 1);
}

function makeColumns(job: Job): Column<Entry>[] {
  return [
    {
      name: "name",
      title: "Name",
      width: 180,
      grows: 1,
      sortBy: nameOf,
      show: (entry) => (
        <span className="row">
          <Icon name={entry.kind === "folder" ? "folder" : "file"} size={14} />
          {entry.kind === "folder" ? (
            <Link to={`/jobs/${job.id}`} query={{ tab: "files", folder: entry.path }} className="cut">
              {nameOf(entry)}
            </Link>
          ) : (
            <a href={download(job, entry.path)} download className="cut">
              {nameOf(entry)}
            </a>
          )}
        </span>
      ),
    },
    {
      name: "size",
      title: "Size",
      width: 90,
      isEnd: true,
      sortBy: (entry) => (entry.kind === "folder" ? null : entry.num_bytes),
      show: (entry) => (entry.kind === "folder" ? "" : formatBytes(entry.num_bytes)),
    },
    {
      name: "time",
      title: "Modified",
      width: 110,
      isEnd: true,
      leaves: 1,
      sortBy: (entry) => entry.modified_at,
      show: (entry) => (
        <span className="quiet" title={formatFullTime(entry.modified_at)}>
          <Ago time={entry.modified_at} />
        </span>
      ),
    },
  ];
}
