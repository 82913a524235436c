/** Names with values, as many as there are: parameters and environment. There is always an empty row for the next. */

import { useId } from "react";
import { Button } from "@/parts/button";
import type { Pair } from "./draft";

interface PairsProps {
  label: string;
  hint?: string;
  wrong?: string | undefined;
  pairs: readonly Pair[];
  onPairs: (pairs: Pair[]) => void;
  nameHint: string;
  valueHint: string;
}

const NOTHING: Pair = { name: "", value: "" };

/** The rows. */
export function PairsField({ label, hint, wrong, pairs, onPairs, nameHint, valueHint }: PairsProps) {
  const id = useId();
  const rows = [...pairs, NOTHING];
  const set = (place: number, change: Partial<Pair>) =>
    onPairs(
      rows
        .map((pair, at) => (at === place ? { ...pair, ...change } : pair))
        .filter((pair, at) => at < pairs.length || pair.name || pair.value),
    );
  return (
    <div className="field" role="group" aria-labelledby={id} aria-describedby={`${id}-said`}>
      <div className="field-label" id={id}>
        {label}
      </div>
      {rows.map((pair, place) => (
        <div className="pair" key={place}>
          <input
            className="input mono"
            aria-label={`${label}: name ${place + 1}`}
            placeholder={place === pairs.length ? nameHint : ""}
            spellCheck={false}
            autoCapitalize="none"
            value={pair.name}
            onChange={(event) => set(place, { name: event.currentTarget.value })}
          />
          <input
            className="input mono"
            aria-label={`${label}: value ${place + 1}`}
            placeholder={place === pairs.length ? valueHint : ""}
            spellCheck={false}
            value={pair.value}
            onChange={(event) => set(place, { value: event.currentTarget.value })}
          />
          <Button
            icon="cross"
            look="plain"
            aria-label={`Remove ${pair.name || "the empty row"}`}
            disabled={place === pairs.length}
            onClick={() => onPairs(pairs.filter((_, at) => at !== place))}
          />
        </div>
      ))}
      <div id={`${id}-said`} className={wrong ? "field-wrong" : "field-hint"}>
        {wrong || hint}
      </div>
    </div>
  );
}
