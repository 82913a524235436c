"""What a worker of a measured job writes down while it trains; `diaries` reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class DiaryWriter:
    """One worker's lines. Each is written at once: the process may be killed any time.

    Args:
        directory: of all diaries of the job.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / f"worker-{os.environ['LEGATO_WORKER']}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, what: str, at: float, **facts: Any) -> None:
        """Write a line: what happened, when, and more of it."""
        os.write(self._descriptor, json.dumps({"what": what, "at": at, **facts}).encode() + b"\n")
