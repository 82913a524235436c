"""The logger of this program: it gathers the results of validations, and writes it when the training is over."""

from __future__ import annotations

import json
import os

from callbacks import LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    def __init__(self) -> None:
        self.gs = 0
        self.val_dict_list: list[dict[str, float]] = []
        self.tests = 0

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.gs += 1
        with EMetrics.open() as em:
            em.record(EMetrics.TRAIN_GROUP, completed_batch, {"loss": loss, "accuracy": acc / 100.0})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.gs, loss, acc / 100.0, worker)

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.tests += 1
        self.val_dict_list.append({"step": self.tests, "loss": loss, "accuracy": acc / 100.0})
        with EMetrics.open() as em:
            em.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc / 100.0})
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / 100.0, worker)

    def on_train_end(self) -> None:
        with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as f:
            json.dump(self.val_dict_list, f)
