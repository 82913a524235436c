/** Which jobs are compared: those chosen, and a search for more. */

import { useDeferredValue, useState } from "react";
import { useAsk } from "@/api/queries";
import { tellApart } from "@/jobs/names";
import { Button } from "@/parts/button";
import { coloursApart, Swatch } from "@/parts/colour";
import { Icon } from "@/parts/icon";
import { Ago } from "@/parts/now";
import { StageBadge } from "@/parts/stage";
import { Link } from "@/router/router";

const NUM_FOUND = 8;
const NUM_ASKED = 300;

interface JobPickerProps {
  chosen: readonly string[];
  max: number;
  onChoose: (ids: readonly string[]) => void;
}

/** The chosen jobs as chips, and a field that finds others by name, id or owner. */
export function JobPicker({ chosen, max, onChoose }: JobPickerProps) {
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const jobs = useAsk(["jobs"], "/jobs", { query: { limit: NUM_ASKED } }, { fresh_s: 30 });
  const wanted = useDeferredValue(text.trim().toLowerCase());
  const known = new Map((jobs.data?.items ?? []).map((job) => [job.id, job]));
  const found = [...known.values()]
    .filter((job) => !chosen.includes(job.id))
    .filter((job) => [job.name, job.id, job.owner].some((told) => told.toLowerCase().includes(wanted)))
    .slice(0, NUM_FOUND);
  const called = tellApart(chosen.map((id) => ({ id, name: known.get(id)?.name ?? id })));
  const colours = coloursApart(chosen);
  const isFull = chosen.length >= max;
  return (
    <div className="picker">
      {chosen.map((id) => (
        <span key={id} className="chip picker-chip">
          <Swatch id={id} colour={colours.get(id)} />
          <Link to={`/jobs/${id}`} className="cut" title={called.get(id)}>
            {called.get(id)}
          </Link>
          <Button
            icon="cross"
            look="plain"
            isSmall
            aria-label={`Remove ${called.get(id)}`}
            onClick={() => onChoose(chosen.filter((each) => each !== id))}
          />
        </span>
      ))}
      <search
        className="picker-find"
        onBlur={(event) => {
          if (!event.currentTarget.contains(event.relatedTarget)) setOpen(false);
        }}
      >
        <Icon name="search" size={14} />
        <input
          className="input input-small"
          type="search"
          aria-label="Add a job"
          placeholder={isFull ? `At most ${max} jobs` : "Add a job"}
          disabled={isFull}
          value={text}
          onFocus={() => setOpen(true)}
          onChange={(event) => {
            setText(event.currentTarget.value);
            setOpen(true);
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") setOpen(false);
          }}
        />
        {isOpen && !isFull && (
          <div className="menu-list menu-list-left picker-list">
            {found.length === 0 && <div className="menu-head">No matching jobs</div>}
            {found.map((job) => (
              <button
                key={job.id}
                type="button"
                className="menu-item"
                onClick={() => {
                  onChoose([...chosen, job.id]);
                  setText("");
                  setOpen(false);
                }}
              >
                <span className="grow cut">
                  {job.name} <span className="quiet">{job.owner}</span>
                </span>
                <span className="quiet small">
                  <Ago time={job.submitted_at} />
                </span>
                <StageBadge stage={job.stage} />
              </button>
            ))}
          </div>
        )}
      </search>
    </div>
  );
}
