/** Charts of what workers or a machine use. They have the charts' common cursor, and gaps where nothing was measured. */

import { type ComponentProps, useMemo } from "react";
import { Chart } from "./chart";
import type { SystemChart } from "./system-lines";

type Common = Omit<ComponentProps<typeof Chart>, "title" | "unit" | "lines">;

/** The charts, each in a card. */
export function SystemCharts({ charts, common }: { charts: readonly SystemChart[]; common: Common }) {
  const drawn = useMemo(
    () =>
      charts.map(({ lines, ...chart }) => ({
        ...chart,
        // There are as many colours as `MAX_LINES`.
        lines: lines.map((line, place) => ({ ...line, colour: `var(--job-${place})` })),
      })),
    [charts],
  );
  return (
    <>
      {drawn.map(({ title, unit, lines }) => (
        <div className="card charts-card" key={title}>
          <Chart {...common} title={title} unit={unit} lines={lines} fromZero />
        </div>
      ))}
    </>
  );
}
