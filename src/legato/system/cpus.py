"""Reads the kernel's description of this machine's CPU. Decides nothing."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple


class Processor(NamedTuple):
    """One CPU.

    Args:
        vendor: such as ``GenuineIntel``; "" if the kernel names none.
        flags: its features, as in ``/proc/cpuinfo``; none if the kernel names none.
    """

    vendor: str
    flags: frozenset[str]


@functools.cache
def read_processor() -> Processor:
    """Return the first CPU of this machine."""
    found = {}
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if not name.strip():
                    break
                found[name.strip()] = value.strip()
    except OSError:
        # Not Linux.
        return Processor("", frozenset())
    return Processor(found.get("vendor_id", ""), frozenset(found.get("flags", "").split()))
