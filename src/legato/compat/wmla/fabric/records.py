"""`ELog` and `EMetrics` write the metrics of a training to two files, in the exact formats that other software parses.

Both write into the directory that the variable ``LOG_DIR`` names when ``open()`` is called.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TextIO

from legato.compat.wmla.names import ELOG_FILE, METRICS_FILE


class ELog:
    """Appends lines to ``LOG_DIR/stdout``; a context manager.

    Args:
        sub_id: id of the trial, in a hyperparameter search.
        file: for the lines.
    """

    def __init__(self, sub_id: str | None, file: TextIO) -> None:
        self.subId = sub_id
        self.f = file

    @staticmethod
    def open(subId: str | None = None) -> ELog:  # noqa: N803 - its name in users' programs
        """Open the log of this process."""
        return ELog(subId, _open(subId, ELOG_FILE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def recordText(self, text: str) -> None:  # noqa: N802 - as above
        """Append a line that begins with the local time."""
        self.f.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")
        self.f.flush()

    def recordTrain(  # noqa: N802 - as above
        self,
        title: str,
        iteration: int,
        global_steps: int,
        loss: float | Mapping[str, float],
        accuracy: float = 0.0,
        worker: int = 0,  # noqa: ARG002 - users' loggers give it
    ) -> None:
        """Append a line with the loss and accuracy of a micro-batch, or with metrics by name in place of ``loss``."""
        counts = f",\tGlobal steps: {global_steps},\tIteration: {iteration}"
        self.recordText(f"{title},\tTimestamp: {_now_ms()}{counts}{_figures(loss, accuracy)}")

    def recordTest(  # noqa: N802 - as above
        self,
        title: str,
        loss: float | Mapping[str, float],
        accuracy: float = 0.0,
        worker: int = 0,  # noqa: ARG002 - as above
    ) -> None:
        """Append a line with the loss and accuracy of a validation, or with metrics by name in place of ``loss``."""
        self.recordText(f"{title},\tTimestamp: {_now_ms()}{_figures(loss, accuracy)}")

    def close(self) -> None:
        """Close the file."""
        self.f.close()


class EMetrics:
    """Appends JSON objects, one a line, to ``LOG_DIR/evaluation-metrics.txt``; a context manager.

    Args:
        sub_id: id of the trial, in a hyperparameter search. With it, the values of the test group also go to
            ``RESULT_DIR/val_dict_list.json``, where the search reads them.
        file: for the lines.
    """

    TEST_GROUP: ClassVar[str] = "test"
    TRAIN_GROUP: ClassVar[str] = "train"

    def __init__(self, sub_id: str | None, file: TextIO) -> None:
        self.trainingId = os.environ.get("TRAINING_ID", "")
        self.subId = sub_id
        self.f = file
        self.test_history: list[dict[str, Any]] = []

    @staticmethod
    def open(subId: str | None = None) -> EMetrics:  # noqa: N803 - its name in users' programs
        """Open the metrics of this process."""
        return EMetrics(subId, _open(subId, METRICS_FILE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record(self, group: str, iteration: int, values: Mapping[str, Any]) -> None:
        """Append a line with values by name, of a group (``train`` or ``test``) and an iteration."""
        if self.subId and group == self.TEST_GROUP:
            self.test_history.append({"steps": iteration, **values})
        now = time.time()
        meta = {"training_id": self.trainingId, "time": int(now * 1000), "rindex": 1}
        if self.subId:
            meta["subid"] = str(self.subId)
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(now))}.{int(now)}"
        line = {
            "meta": meta,
            "grouplabel": group,
            "etimes": {"iteration": _typed(iteration), "time_stamp": _typed(stamp)},
            "values": {name: _typed(value) for name, value in values.items()},
        }
        self.f.write(json.dumps(line) + "\n")
        self.f.flush()

    def close(self) -> None:
        """Close the file; in a hyperparameter search, also write ``val_dict_list.json``."""
        self.f.close()
        if self.subId:
            # Each worker may write it; a reader sees the whole text of one of them.
            directory = os.environ.get("RESULT_DIR") or tempfile.gettempdir()
            draft = Path(directory, f".val_dict_list.json.{secrets.token_hex(8)}")
            draft.write_text(json.dumps(self.test_history))
            draft.replace(Path(directory, "val_dict_list.json"))


def _open(sub_id: str | None, name: str) -> TextIO:
    directory = os.environ.get("LOG_DIR")
    if directory is None:
        state = os.environ.get("JOB_STATE_DIR")
        directory = tempfile.gettempdir() if state is None else str(Path(state, "logs"))
    folder = Path(directory, str(sub_id)) if sub_id is not None else Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / name).open("a")


def _now_ms() -> int:
    return round(time.time() * 1000)


def _figures(loss: float | Mapping[str, float], accuracy: float) -> str:
    r"""Return values with at most five decimals, without trailing zeros, as part of a line.

    >>> _figures(0.5, 1 / 3), _figures({"loss": 2.0, "top5": 0.25}, 0.0)
    (',\tLoss: 0.5,\tAccuracy: 0.33333', ',\tloss: 2.0,\ttop5: 0.25')
    """
    figures = loss if isinstance(loss, Mapping) else {"Loss": loss, "Accuracy": accuracy}
    return "".join(f",\t{name}: {float(f'{value:.5f}')}" for name, value in figures.items())


def _typed(value: object) -> dict[str, Any]:
    """Return a value with its type, as `EMetrics` writes it.

    >>> _typed(3), _typed(0.5), _typed("x")
    ({'type': 2, 'value': '3'}, {'type': 3, 'value': '0.5'}, {'value': 'x'})
    """
    kind = {"type": 2} if isinstance(value, int) else {"type": 3} if isinstance(value, float) else {}
    return {**kind, "value": str(value)}
