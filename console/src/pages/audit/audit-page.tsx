/** Who did what to what, and when: for administrators. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { ask } from "@/api/client";
import type { components } from "@/api/schema";
import { formatFullTime, formatTime } from "@/format/time";
import { Button } from "@/parts/button";
import { SearchField } from "@/parts/field";
import { Answered, Empty, NoPermission } from "@/parts/states";
import { type Column, Table } from "@/parts/table";
import { Link, useQueryValue } from "@/router/router";
import { useSession } from "@/session/session";
import { sayDetail } from "./detail";
import "@/pages/projects/projects.css";

type Entry = components["schemas"]["AuditEntry"];
const PAGE_SIZE = 200;

const COLUMNS: Column<Entry>[] = [
  {
    name: "time",
    title: "Time",
    width: 110,
    show: (entry) => (
      <time className="number" title={formatFullTime(entry.time)}>
        {formatTime(entry.time)}
      </time>
    ),
  },
  {
    name: "who",
    title: "User",
    width: 100,
    grows: 1,
    show: (entry) =>
      entry.who ? (
        <Link to="/audit" query={{ q: entry.who }} title={`Actions of ${entry.who}`}>
          {entry.who}
        </Link>
      ) : (
        <span className="quiet">unknown user</span>
      ),
  },
  { name: "action", title: "Action", width: 150, grows: 1, show: (entry) => <code>{entry.action}</code> },
  {
    name: "target",
    title: "Target",
    width: 140,
    grows: 2,
    show: (entry) => <code title={entry.target ?? ""}>{entry.target}</code>,
  },
  {
    name: "detail",
    title: "Details",
    width: 160,
    grows: 4,
    leaves: 1,
    show: (entry) => (
      <span className="soft" title={sayDetail(entry.detail)}>
        {sayDetail(entry.detail)}
      </span>
    ),
  },
];
const keyOf = (entry: Entry) => String(entry.id);

/** The page. */
export default function AuditPage() {
  const session = useSession();
  if (session.role !== "admin") {
    return (
      <div className="page">
        <div className="page-head">
          <h1>Audit</h1>
        </div>
        <NoPermission>Only administrators can see the audit log.</NoPermission>
      </div>
    );
  }
  return <Audit />;
}

function Audit() {
  const [contains, setContains] = useQueryValue("q");
  const asked = useInfiniteQuery({
    queryKey: ["settings", "audit"],
    queryFn: ({ pageParam, signal }) =>
      ask("get", "/audit", {
        query: { limit: PAGE_SIZE, ...(pageParam === null ? {} : { after: pageParam }) },
        signal,
      }),
    initialPageParam: null as number | null,
    getNextPageParam: (page) => (page.after === null ? null : Number(page.after)),
    refetchInterval: 15_000,
  });
  const entries = useMemo(() => asked.data?.pages.flatMap((page) => page.items) ?? [], [asked.data]);
  const shown = useMemo(() => {
    const sought = contains.toLowerCase();
    return entries.filter((entry) =>
      [entry.who, entry.action, entry.target, sayDetail(entry.detail)].join(" ").toLowerCase().includes(sought),
    );
  }, [entries, contains]);
  return (
    <div className="page page-full">
      <div className="page-head">
        <h1>Audit</h1>
        <SearchField label="Search loaded entries" value={contains} onValue={setContains} />
      </div>
      <Answered asked={asked} what="the audit log">
        {() => (
          <section className="card list-card" aria-label="Audit log">
            <Table
              label="Audit log"
              rows={shown}
              columns={COLUMNS}
              keyOf={keyOf}
              rowHeight={38}
              empty={<Empty icon="search" title="No match in loaded entries" />}
              foot={
                asked.hasNextPage && (
                  <div className="list-more">
                    <Button isSmall isBusy={asked.isFetchingNextPage} onClick={() => void asked.fetchNextPage()}>
                      Show older entries
                    </Button>
                  </div>
                )
              }
            />
          </section>
        )}
      </Answered>
    </div>
  );
}
