"""How a worker asks the agent of its machine for the newest checkpoint: by two files in the folder. Data only."""

from __future__ import annotations

from typing import Final

import msgspec

DIRECTORY_VARIABLE: Final = "LEGATO_CHECKPOINT_DIR"
"""The folder for checkpoints of a machine that does not share the driver's; the machine's agent fetches and sends."""

WANTED: Final = ".wanted-"
HERE: Final = ".here-"


class Answer(msgspec.Struct, frozen=True):
    """The content of ``.here-PID``: None, or why the newest checkpoint could not be fetched."""

    error: str | None = None
