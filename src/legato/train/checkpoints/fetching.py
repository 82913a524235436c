"""Has the agent of this machine fetch the newest checkpoint, if the machine does not share the job's directory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from legato.core.checkpoint_requests import DIRECTORY_VARIABLE, HERE, WANTED, Answer
from legato.core.errors import CheckpointError
from legato.system.decoding import decode

_LOOK_EVERY_S: Final = 0.05


def fetch_newest(directory: Path) -> None:
    """Wait until the job's newest checkpoint is in a directory. Does nothing where workers share the job's directory.

    There is no time limit: a checkpoint may be large. Without a driver, this worker ends like all workers do.

    Raises:
        CheckpointError: it cannot be fetched.
    """
    if os.environ.get(DIRECTORY_VARIABLE) != str(directory):
        return
    directory.mkdir(parents=True, exist_ok=True)
    here = directory / f"{HERE}{os.getpid()}"
    here.unlink(missing_ok=True)
    (directory / f"{WANTED}{os.getpid()}").touch()
    while not here.exists():
        time.sleep(_LOOK_EVERY_S)
    answer = decode(here.read_bytes(), Answer)
    here.unlink(missing_ok=True)
    if answer.error is not None:
        raise CheckpointError(f"Cannot fetch the newest checkpoint from the driver's machine: {answer.error}.")
