"""The program's own logger: it gathers values, and writes them when the training is over."""

from __future__ import annotations

import json
import os
from pathlib import Path

from callbacks import LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    def __init__(self) -> None:
        self.gs = 0
        self.gathered: list[tuple[int, float]] = []

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.gs += 1
        with EMetrics.open() as em:
            em.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc / 100.0})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.gs, loss, acc / 100.0, worker)
        self.gathered.append((self.gs, loss))

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / 100.0, worker)

    def on_train_end(self) -> None:
        Path(os.environ["RESULT_DIR"], "val_dict_list.json").write_text(json.dumps(self.gathered))
