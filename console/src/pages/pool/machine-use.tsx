/** What the programs of a machine use now, and charts of the last hour. */

import { lazy, Suspense, useState } from "react";
import { formatBytes, formatShare } from "@/format/numbers";
import { Button } from "@/parts/button";
import { Loading } from "@/parts/states";
import type { NodeState } from "./machine";

const MachineCharts = lazy(() => import("./machine-charts"));

/** Say what a machine's programs use; "": it is not measured. */
export function sayUse({ metrics }: NodeState): string {
  if (!metrics) return "";
  const { cpus, num_cpus, memory_bytes, total_bytes, gpus } = metrics;
  const parts = [
    `CPU ${cpus.toFixed(1)} of ${num_cpus}`,
    `Memory ${formatBytes(memory_bytes)} of ${formatBytes(total_bytes)}`,
  ];
  const busy = gpus.flatMap((gpu) => (gpu.busy === null ? [] : [gpu.busy]));
  if (busy.length) parts.push(`GPUs ${formatShare(busy.reduce((sum, part) => sum + part, 0) / busy.length)} busy`);
  const sum = (of: (gpu: (typeof gpus)[number]) => number) => formatBytes(gpus.reduce((all, gpu) => all + of(gpu), 0));
  if (gpus.length) parts.push(`GPU memory ${sum((gpu) => gpu.memory_bytes)} of ${sum((gpu) => gpu.total_bytes)}`);
  return parts.join(" · ");
}

/** What a machine uses. Charts are loaded when they are opened. */
export function MachineUse({ node }: { node: NodeState }) {
  const [isOpen, setOpen] = useState(false);
  const use = sayUse(node);
  if (!use && !isOpen) return null;
  return (
    <>
      <div className="machine">
        <span className="quiet small">{use || "not measured now"}</span>
        <Button
          isSmall
          aria-expanded={isOpen}
          aria-label={`Charts of ${node.name}`}
          onClick={() => setOpen((before) => !before)}
        >
          Charts
        </Button>
      </div>
      {isOpen && (
        <Suspense fallback={<Loading numLines={3} />}>
          <MachineCharts node={node.name} />
        </Suspense>
      )}
    </>
  );
}
