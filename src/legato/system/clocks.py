"""A clock of this machine that also runs while the machine is suspended."""

from __future__ import annotations

import time
from typing import Final

_BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def read_boot_clock() -> float:
    """Return seconds since the machine was started, including those in which it was suspended.

    ``time.monotonic`` stops while a machine is suspended, so a time limit against another machine must not use it. The
    result is that of ``time.monotonic`` on systems that have no such clock. No clock of a virtual machine counts a
    pause that the host hides from it.
    """
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)
