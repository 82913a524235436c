/** One of a few, all of them to be seen: a row of buttons of which one is pressed. */

import type { ReactNode } from "react";
import "./segments.css";

export interface Segment {
  value: string;
  label: ReactNode;
  isOff?: boolean;
}

interface SegmentsProps {
  label: string;
  choices: readonly Segment[];
  chosen: string;
  onChoose: (value: string) => void;
}

/** The row. */
export function Segments({ label, choices, chosen, onChoose }: SegmentsProps) {
  return (
    <div className="segments" role="group" aria-label={label}>
      {choices.map((choice) => (
        <button
          key={choice.value}
          type="button"
          className="segment"
          aria-pressed={choice.value === chosen}
          disabled={choice.isOff}
          onClick={() => onChoose(choice.value)}
        >
          {choice.label}
        </button>
      ))}
    </div>
  );
}
