"""The exit codes of a worker's process for ends that its program did not cause."""

from __future__ import annotations

from typing import Final

EXIT_LOST_LINK: Final = 70  # its link to the driver failed
EXIT_UNSTARTED: Final = 71  # there was none: no process could be started for it
EXIT_REFUSED: Final = 75  # it was refused: it runs something else than the others
