"""The log file of a process, as programs of generation 1 bring it: a line for each call, shortest form of numbers."""

from __future__ import annotations

import os
import time
from typing import IO, Self


def _short(value: float) -> str:
    return f"{value:.5f}".rstrip("0").rstrip(".")


class ELog:
    def __init__(self) -> None:
        directory = os.environ.get("LOG_DIR") or os.path.join(os.environ["JOB_STATE_DIR"], "logs")
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, "stdout")
        self.file: IO[str] | None = None

    @staticmethod
    def open() -> ELog:
        return ELog()

    def __enter__(self) -> Self:
        self.file = open(self.path, "a")
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self.file is not None
        self.file.close()

    def record(self, *words: str) -> None:
        assert self.file is not None
        stamp = time.strftime("[%Y-%m-%d %H:%M:%S]")
        self.file.write(f"{stamp} " + ",\t".join(words) + "\n")

    def recordTrain(self, title: str, iteration: int, steps: int, loss: float, accuracy: float, worker: int) -> None:
        numbers = (f"Global steps: {steps}", f"Iteration: {iteration}", f"Loss: {_short(loss)}")
        self.record(title, f"Timestamp: {int(time.time() * 1000)}", *numbers, f"Accuracy: {_short(accuracy)}")

    def recordTest(self, title: str, loss: float, accuracy: float, worker: int) -> None:
        stamp = f"Timestamp: {int(time.time() * 1000)}"
        self.record(title, stamp, f"Loss: {_short(loss)}", f"Accuracy: {_short(accuracy)}")
