/** The code of a training definition: which, and how large it is. */

import { makeAddress } from "@/api/client";
import { useAsk } from "@/api/queries";
import { formatBytes } from "@/format/numbers";
import type { Definition } from "@/pages/projects/project-data";
import { buttonClass, CopyButton } from "@/parts/button";
import { Icon } from "@/parts/icon";
import { maySubmit, useSession } from "@/session/session";

/** What is known of the code. */
export function CodeFact({ definition }: { definition: Definition }) {
  const session = useSession();
  const sha256 = definition.code ?? "";
  const isOn = sha256 !== "" && maySubmit(session);
  const asked = useAsk(["settings", "code", sha256], "/code/{sha256}", { path: { sha256 } }, { isOn, fresh_s: 600 });
  if (definition.directory) return <code>{definition.directory}</code>;
  if (!sha256) return <span className="quiet">uploaded (hidden from viewers)</span>;
  return (
    <span className="row row-wrap">
      <span>
        uploaded{asked.data && `, ${formatBytes(asked.data.num_bytes)} by ${asked.data.uploaded_by}`},{" "}
        <code title={sha256}>{sha256.slice(0, 12)}</code>
      </span>
      <CopyButton text={sha256} what="the SHA-256 of the code" />
      {isOn && (
        <a className={buttonClass({ isSmall: true })} href={makeAddress("/code/{sha256}/archive", { sha256 })} download>
          <Icon name="download" size={14} /> Download
        </a>
      )}
    </span>
  );
}
