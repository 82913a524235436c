/** A plan as people read it: when it starts and with how much, who shrinks for it, and why. */

import type { Plan } from "@/api/types";
import { Swatch } from "@/parts/colour";
import { Icon } from "@/parts/icon";
import { SlotBar } from "@/parts/slots";
import { Link } from "@/router/router";
import { sayPlan } from "./plan";
import "./plan.css";

const SIGNS = { now: "play", soon: "clock", later: "clock" } as const;
const TONES = { now: "good", soon: "info", later: "warn" } as const;

/** One plan. */
export function PlanView({ plan, min, max }: { plan: Plan; min: number; max: number }) {
  const shown = plan.starts === "now" ? plan.slots_now || plan.slots : plan.slots;
  return (
    <div className="plan" data-starts={plan.starts}>
      <div className={`plan-head tone-${TONES[plan.starts]}`}>
        <Icon name={SIGNS[plan.starts]} size={15} />
        <strong className="grow">{sayPlan(plan, max)}</strong>
        <SlotBar num={shown} min={min} max={max} colour="currentColor" />
      </div>
      {plan.effects.length > 0 ? (
        <EffectList effects={plan.effects} />
      ) : (
        plan.starts !== "later" && <p className="small soft">No other job is affected.</p>
      )}
      {plan.starts === "later" && <p className="small soft">It {plan.reason}.</p>}
    </div>
  );
}

/** What would change for others. */
export function EffectList({ effects }: { effects: Plan["effects"] }) {
  return (
    <ul className="effects">
      {effects.map((effect) => (
        <li key={effect.job} className="effect">
          <Swatch id={effect.job} />
          <span className="quiet">{effect.after < effect.before ? "shrinks" : "grows"}</span>
          <Link to={`/jobs/${effect.job}`} className="cut grow" title={effect.title}>
            {effect.title}
          </Link>
          <span className="number nowrap">
            {effect.before} <span aria-hidden="true">→</span>
            <span className="only-heard">to</span> <strong>{effect.after}</strong>
          </span>
        </li>
      ))}
    </ul>
  );
}
