"""Reads files in which the kernel gives one number per line. Decides nothing."""

from __future__ import annotations

from pathlib import Path


def read_kib(path: str, name: str) -> int:
    """Return a number of KiB from a file such as ``/proc/meminfo``; 0 if it has no line of that name.

    Args:
        path: of the file.
        name: what stands before the colon, such as ``MemAvailable``.

    Raises:
        OSError: the file cannot be read.
    """
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    return 0
