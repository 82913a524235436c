"""Calls of users' callbacks and loggers whose errors must not end the training. They are reported, never swallowed."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import Final

_TOLD_IN_FULL: Final = 3


class Guard:
    """Lets the training go on after an error in what was called, and says so in the worker's error log."""

    def __init__(self) -> None:
        self._num_errors: Counter[str] = Counter()

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Call something under guard.

        Args:
            name: of what is called; after some errors in the same, further ones are counted only.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - told whole; a logger is not worth a training
            self._num_errors[name] += 1
            number = self._num_errors[name]
            if number <= _TOLD_IN_FULL:
                told = "".join(traceback.format_exception(type(error), error, _frames_of_program(error)))
                sys.stderr.write(f"{told}{name} failed with the error above. The training goes on.\n")
            if number == _TOLD_IN_FULL:
                sys.stderr.write(f"Further errors of {name} are not shown.\n")
            sys.stderr.flush()


def _frames_of_program(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame on that is not our own."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith("legato."):
        frame = frame.tb_next
    return frame
