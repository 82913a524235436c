/** Who has how much of the pool and how much is theirs, queue by queue. */

import { formatValue } from "@/format/numbers";
import { jobColour } from "@/parts/colour";
import { Empty } from "@/parts/states";
import type { Share } from "./pool-data";

/** One bar for each queue, all on the scale of the whole pool. */
export function Shares({ shares, numSlots }: { shares: readonly Share[]; numSlots: number }) {
  if (shares.length === 0) {
    return <Empty title="No queues">You are not a member of a queue. Ask an administrator to add you.</Empty>;
  }
  return (
    <div className="shares">
      {shares.map((share) => (
        <ShareRow key={share.queue} share={share} numSlots={Math.max(1, numSlots)} />
      ))}
      <p className="small quiet">
        <span className="share-sign share-sign-held" aria-hidden="true" /> in use{" "}
        <span className="share-sign share-sign-borrowed" aria-hidden="true" /> borrowed (returned on demand){" "}
        <span className="share-sign share-sign-fair" aria-hidden="true" /> fair share{" "}
        <span className="share-sign share-sign-floor" aria-hidden="true" /> floor
      </p>
    </div>
  );
}

function ShareRow({ share, numSlots }: { share: Share; numSlots: number }) {
  const { queue, held, borrowed, fair, floor, ceiling, wanted } = share;
  const part = (slots: number) => `${(100 * Math.min(slots, numSlots)) / numSlots}%`;
  const over = borrowed ?? 0;
  const own = Math.max(0, held - over);
  const colour = jobColour(queue);
  const told =
    `${queue} uses ${held} of ${numSlots} slots. Fair share: ${formatValue(fair, 3)}` +
    `${over ? `, borrowed: ${formatValue(over, 3)}` : ""}, floor: ${floor}${ceiling === null ? "" : `, ceiling: ${ceiling}`}.`;
  return (
    <div className="share">
      <div className="row">
        <strong className="cut grow" title={queue}>
          {queue}
        </strong>
        <span className="number">
          {held} in use <span className="quiet">· fair share {formatValue(fair, 3)}</span>
        </span>
      </div>
      <div className="share-bar" role="img" aria-label={told} title={told}>
        <div className="share-own" style={{ width: part(own), background: colour }} />
        <div className="share-borrowed" style={{ left: part(own), width: part(Math.min(held, over)), color: colour }} />
        {ceiling !== null && ceiling < numSlots && <div className="share-over" style={{ left: part(ceiling) }} />}
        {floor > 0 && <div className="share-floor" style={{ left: part(floor) }} />}
        {fair !== null && <div className="share-fair" style={{ left: part(fair) }} />}
      </div>
      <div className="small quiet">
        weight {formatValue(share.weight, 3)} · floor {floor}
        {ceiling !== null && ` · ceiling ${ceiling}`}
        {over > 0 && ` · ${formatValue(over, 3)} borrowed`}
        {wanted > held && ` · requests ${wanted - held} more`}
      </div>
    </div>
  );
}
