"""Has the agent of this machine fetch the newest checkpoint, if the machine does not share the job's directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from legato.core import wire
from legato.core.checkpoint_requests import DIRECTORY_VARIABLE, HERE, WANTED, Answer
from legato.core.errors import CheckpointError
from legato.core.limits import render_size
from legato.system.decoding import decode

_LOOK_EVERY_S: Final = 0.05
_FIRST_NOTE_S: Final = 5.0
_MAX_NOTE_S: Final = 60.0


def fetch_newest(directory: Path, say: Callable[[wire.Note], None]) -> None:
    """Wait until the job's newest checkpoint is in a directory. Does nothing where workers share the job's directory.

    There is no time limit: a checkpoint may be large. Without a driver, this worker ends like all workers do.

    Args:
        directory: of this machine's checkpoints.
        say: sends a message. While bytes come, messages say how many, so that this worker does not seem to hang.

    Raises:
        CheckpointError: it cannot be fetched.
    """
    if os.environ.get(DIRECTORY_VARIABLE) != str(directory):
        return
    directory.mkdir(parents=True, exist_ok=True)
    here = directory / f"{HERE}{os.getpid()}"
    here.unlink(missing_ok=True)
    (directory / f"{WANTED}{os.getpid()}").touch()
    began, wait_s, num_bytes = time.monotonic(), _FIRST_NOTE_S, 0
    next_note = began + wait_s
    while not here.exists():
        time.sleep(_LOOK_EVERY_S)
        if time.monotonic() >= next_note:
            wait_s = min(2 * wait_s, _MAX_NOTE_S)
            next_note = time.monotonic() + wait_s
            before, num_bytes = num_bytes, _measure_parts(directory)
            if num_bytes > before:
                told = f"the newest checkpoint comes from the driver's machine: {render_size(num_bytes)} so far"
                say(wire.Note(level="info", text=f"{told}, after {time.monotonic() - began:.0f} s"))
    answer = decode(here.read_bytes(), Answer)
    here.unlink(missing_ok=True)
    if answer.error is not None:
        raise CheckpointError(f"Cannot fetch the newest checkpoint from the driver's machine: {answer.error}.")


def _measure_parts(directory: Path) -> int:
    num_bytes = 0
    for path in directory.glob(".step-*.part"):
        with contextlib.suppress(FileNotFoundError):
            num_bytes += path.stat().st_size
    return num_bytes
