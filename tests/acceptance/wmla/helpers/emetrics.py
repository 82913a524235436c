"""The metrics file of a process, as programs of WMLA 1.2.1 bring it: a JSON object a line, of plain numbers only."""

from __future__ import annotations

import json
import os
import time
from typing import IO, Any, Self

_TYPES = {int: 2, float: 3}


class EMetrics:
    TEST_GROUP = "test"
    TRAIN_GROUP = "train"

    def __init__(self, sub: str | None) -> None:
        directory = os.environ.get("LOG_DIR") or os.path.join(os.environ["JOB_STATE_DIR"], "logs")
        self.meta: dict[str, Any] = {"training_id": os.environ.get("TRAINING_ID", "")}
        if sub:
            directory = os.path.join(directory, sub)
            self.meta["subid"] = sub
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, "evaluation-metrics.txt")
        self.file: IO[str] | None = None

    @staticmethod
    def open(subId: str | None = None) -> EMetrics:
        return EMetrics(subId)

    def __enter__(self) -> Self:
        self.file = open(self.path, "a")
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self.file is not None
        self.file.close()

    def record(self, group: str, iteration: int, values: dict[str, Any]) -> None:
        assert self.file is not None
        now = int(time.time() * 1000)
        record = {
            "meta": {**self.meta, "time": now, "rindex": 1},
            "grouplabel": group,
            "etimes": {
                "iteration": {"type": 2, "value": str(iteration)},
                "time_stamp": {"type": 4, "value": time.strftime("%Y-%m-%dT%H:%M:%S")},
            },
            "values": {name: {"type": _TYPES[type(value)], "value": str(value)} for name, value in values.items()},
        }
        self.file.write(json.dumps(record) + "\n")
