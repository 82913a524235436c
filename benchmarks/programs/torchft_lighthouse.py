"""torchft's lighthouse: writes its port down, and serves until it is killed.

The first argument is a JSON object: directory, address, min_workers, heartbeat_limit_s, join_limit_s.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from torchft.coordination import LighthouseServer  # type: ignore[import-not-found,import-untyped,unused-ignore]


def main() -> None:
    case = json.loads(sys.argv[1])
    lighthouse = LighthouseServer(
        bind=f"{case['address']}:0",
        min_replicas=case["min_workers"],
        join_timeout_ms=round(1e3 * case["join_limit_s"]),
        heartbeat_timeout_ms=round(1e3 * case["heartbeat_limit_s"]),
    )
    path = Path(case["directory"]) / "lighthouse"
    path.with_suffix(".new").write_text(lighthouse.address().rpartition(":")[2])
    path.with_suffix(".new").replace(path)
    signal.pause()


main()
