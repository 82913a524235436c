/** The stage of a job: a word with a sign, so that colour is never all that tells. */

import type { Stage } from "@/api/types";
import { Icon, type IconName } from "./icon";

interface Look {
  word: string;
  icon: IconName;
  tone: "good" | "warn" | "bad" | "info" | "quiet";
  moves?: boolean;
}

export const STAGES: Record<Stage, Look> = {
  queued: { word: "Queued", icon: "clock", tone: "warn" },
  starting: { word: "Starting", icon: "spin", tone: "info", moves: true },
  running: { word: "Running", icon: "play", tone: "info" },
  pausing: { word: "Pausing", icon: "spin", tone: "quiet", moves: true },
  paused: { word: "Paused", icon: "pause", tone: "quiet" },
  stopping: { word: "Stopping", icon: "spin", tone: "quiet", moves: true },
  succeeded: { word: "Succeeded", icon: "check", tone: "good" },
  failed: { word: "Failed", icon: "alert", tone: "bad" },
  stopped: { word: "Stopped", icon: "stop", tone: "quiet" },
};

export const ENDED: ReadonlySet<Stage> = new Set(["succeeded", "failed", "stopped"]);
export const ACTIVE: ReadonlySet<Stage> = new Set(["starting", "running", "pausing", "stopping"]);

/** The stage as a badge. */
export function StageBadge({ stage, title }: { stage: Stage; title?: string }) {
  const look = STAGES[stage];
  return (
    <span className={`badge tone-${look.tone}`} title={title}>
      <Icon name={look.icon} size={12} {...(look.moves ? { className: "spins" } : {})} />
      {look.word}
    </span>
  );
}
