"""Measure, write the results down, and put them into the documentation.

``python -m benchmarks [--quick] [--only NAME,...] [--out DIR]``, where a NAME is ``step_time``, ``micro_batches``,
``loading``, ``memory``, ``changes``, ``agreement``, ``checkpoints``, ``deaths``, ``peers``, ``nodes``, ``lost_nodes``,
``scheduling``, ``sharing``, ``load``, ``consoles``, ``history``, ``start`` or ``elasticdl``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import (
    agreement,
    changes,
    checkpoints,
    consoles,
    deaths,
    elasticdl,
    history,
    load,
    loading,
    lost_nodes,
    memory,
    micro_batches,
    nodes,
    peers,
    report,
    scheduling,
    sharing,
    start,
    step_time,
)
from benchmarks.jobs import ROOT, BenchmarkError, Say
from benchmarks.provenance import provenance

RESULTS: Final = ROOT / "benchmarks" / "results"
PAGE: Final = ROOT / "docs" / "benchmarks.md"

_MEASURES: Final[dict[str, Callable[..., Iterator[dict[str, Any]]]]] = {
    "step_time": step_time.measure,
    "micro_batches": micro_batches.measure,
    "loading": loading.measure,
    "memory": memory.measure,
    "changes": changes.measure,
    "agreement": agreement.measure,
    "checkpoints": checkpoints.measure,
    "deaths": deaths.measure,
    "peers": peers.measure,
    "nodes": nodes.measure,
    "lost_nodes": lost_nodes.measure,
    "scheduling": scheduling.measure,
    "sharing": sharing.measure,
    "load": load.measure,
    "consoles": consoles.measure,
    "history": history.measure,
    "start": start.measure,
    "elasticdl": elasticdl.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few events each, about two minutes; not for the docs")
    parser.add_argument("--only", default=",".join(_MEASURES), help=f"some of {','.join(_MEASURES)}")
    parser.add_argument("--out", type=Path, help="where the results go; without it a full run goes into the docs")
    options = parser.parse_args()
    names = options.only.split(",")
    for name in names:
        if name not in _MEASURES:
            parser.error(f"{name!r} is not one of {', '.join(_MEASURES)}")
    out: Path = options.out or (ROOT / "build" / "benchmarks" if options.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    results = [_measure(name, out, quick=options.quick, say=say) for name in names]
    for result in results:
        print(f"\n{result['name']}\n{report.render(result)}", flush=True)
    if out.resolve() == RESULTS:
        report.update(PAGE, [out / f"{name}.json" for name in names])
        say(f"written into {PAGE.relative_to(ROOT)}")
    return 1 if any(result["failures"] for result in results) else 0


def _measure(name: str, out: Path, *, quick: bool, say: Say) -> report.Result:
    say(f"{name} ...")
    known = provenance(quick=quick)
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    try:
        for row in _MEASURES[name](quick=quick, say=say):
            rows.append(row)  # noqa: PERF402 -- what was measured before a failure is kept
    except BenchmarkError as error:
        # The other measurements are worth having all the same.
        failures.append(str(error).splitlines()[0])
        say(f"FAILED: {error}")
    result = {"name": name, "provenance": known, "rows": rows, "failures": failures}
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


if __name__ == "__main__":
    sys.exit(main())
