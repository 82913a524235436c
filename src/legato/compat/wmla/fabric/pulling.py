"""Limits the time that a worker that joins a running training waits for its weights, as WMLA did."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from legato.compat.wmla.fabric.copies import not_for_driver
from legato.compat.wmla.fabric.job_environment import PULL_FAILURES, Pulling
from legato.core.exits import EXIT_LOST_LINK

EXIT_PULL_FAILED: Final = EXIT_LOST_LINK
"""Exit code for a fault that is not the program's: the job continues, and another worker may start instead."""


class PullWatch:
    """Prints PULL_FAILED each time the weights have not arrived within the limit, and stops the worker after too many.

    Args:
        pulling: the limits.
        stop: ends the process with an exit code.
    """

    def __init__(self, pulling: Pulling, stop: Callable[[int], object] = os._exit) -> None:
        self._pulling = pulling
        self._stop = stop
        self._arrived = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="wmla-pull", daemon=True)
        self._thread.start()

    def arrived(self) -> None:
        """Report that the weights have arrived."""
        self._arrived.set()

    def join(self) -> None:
        """Wait until the watch is over."""
        self._thread.join()

    def _watch(self) -> None:
        limit_s, most = self._pulling
        number = 0
        while not self._arrived.wait(limit_s):
            number += 1
            _say(f"PULL_FAILED: the model weights were not ready within {limit_s:g} s (time {number}, {most} allowed).")
            if number > most:
                _say(f"PULL_FAILED more than {most} times ({PULL_FAILURES}): this worker stops.")
                self._stop(EXIT_PULL_FAILED)
                return


def _say(text: str) -> None:
    # This concerns only this worker, even if it becomes rank 0 later and copies its output to the driver's files.
    with not_for_driver():
        for stream in (sys.stdout, sys.stderr):
            stream.write(text + "\n")
            stream.flush()
