"""The helper that programs bring along: a logger of metrics by name, under the parameter of the first generation."""

from __future__ import annotations

from typing import Any

from callbacks import LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    def __init__(self) -> None:
        self.gs = 0

    def log_train_metrics(self, metrics: dict[str, Any], completed_batch: int, epoch: int, worker: int = 0) -> None:
        self.gs += 1
        with EMetrics.open() as em:
            em.record(EMetrics.TRAIN_GROUP, completed_batch, metrics)
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.gs, metrics, worker)

    def log_test_metrics(self, metrics: dict[str, Any], completed_batch: int, epoch: int) -> None:
        with EMetrics.open() as em:
            em.record(EMetrics.TEST_GROUP, completed_batch, metrics)
        with ELog.open() as log:
            log.recordTest(f"Test of epoch {epoch}", metrics)
