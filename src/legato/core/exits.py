"""The exit codes by which a worker's process says why it ended, where its program has nothing to do with it."""

from __future__ import annotations

from typing import Final

EXIT_LOST_LINK: Final = 70  # its link to the driver failed
EXIT_UNSTARTED: Final = 71  # there was none: no process could be started for it
EXIT_REFUSED: Final = 75  # it was refused: it runs something else than the others
