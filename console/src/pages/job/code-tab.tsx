/** The same job elsewhere, to copy: as a command line, as a request, in Python. */

import { useMemo } from "react";
import { useAsk } from "@/api/queries";
import type { Job } from "@/api/types";
import { CopyButton } from "@/parts/button";
import { Answered } from "@/parts/states";
import { writePython, writeRest, writeShell } from "./as-code";

/** The three. */
export function CodeTab({ job }: { job: Job }) {
  const spec = useAsk(["job", job.id], "/jobs/{job}/spec", { path: { job: job.id } }, { fresh_s: 600 });
  const origin = window.location.origin;
  const codes = useMemo(() => {
    if (!spec.data) return [];
    return [
      { title: "Command line", text: writeShell(job, spec.data) },
      { title: "Python", text: writePython(job, spec.data, origin) },
      { title: "REST", text: writeRest(job, spec.data, origin) },
    ];
  }, [job, spec.data, origin]);
  return (
    <Answered asked={spec} what="the code">
      {() => (
        <div className="stack">
          {codes.map((code) => (
            <section className="card" key={code.title}>
              <div className="card-head">
                <h2>{code.title}</h2>
                <CopyButton text={code.text} what={code.title} label="Copy" />
              </div>
              {/* biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse scrolls it by keys */}
              <pre className="code" tabIndex={0} role="region" aria-label={code.title}>
                {code.text}
              </pre>
            </section>
          ))}
        </div>
      )}
    </Answered>
  );
}
