"""Locks that show whether two workers live in one slot. Loads no torch."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def hold_slot() -> None:
    """Lock this worker's slot until the process is gone, and leave a mark if another process has the lock."""
    reins, slot = os.environ.get("LEGATO_TEST_REINS"), os.environ.get("LEGATO_TEST_SLOT")
    if reins is None or slot is None:
        return
    name = slot.replace("/", "-")
    # Such a lock ends with the process, and is not a child's.
    lock = os.open(Path(reins, f"slot-{name}"), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        Path(reins, f"mark-doubled-{name}").touch()
