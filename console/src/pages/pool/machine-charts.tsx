/** What a machine used in the last hour. */

import { useMemo } from "react";
import { useAsk } from "@/api/queries";
import { SystemCharts } from "@/charts/system-charts";
import { chartMachine, findSystemRange } from "@/charts/system-lines";
import { Empty, ErrorState, Loading } from "@/parts/states";

/** The charts of a machine. */
export default function MachineCharts({ node }: { node: string }) {
  const asked = useAsk(["pool"], "/nodes/{node}/system-metrics", { path: { node } }, { every_s: 15 });
  const charts = useMemo(() => (asked.data ? chartMachine(asked.data) : []), [asked.data]);
  const range = asked.data ? findSystemRange(asked.data) : null;
  if (asked.error && !asked.data) {
    return <ErrorState error={asked.error} retry={() => void asked.refetch()} what="the charts" />;
  }
  if (!asked.data) return <Loading numLines={3} />;
  if (!range || !charts.length) return <Empty title="Nothing measured in the last hour">{null}</Empty>;
  return (
    <div className="charts-grid">
      <SystemCharts charts={charts} common={{ group: `node-${node}`, range, height: 110 }} />
    </div>
  );
}
