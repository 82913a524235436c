"""Limits of a worker on its machine, as texts and numbers. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from legato.core.errors import UsageError

MIN_MEMORY_BYTES: Final = 64 * 2**20
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_CORES: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]+)?)(m?)")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a job may use; None: no limit.

    Args:
        memory_bytes: of each worker, including all processes that it starts.
        num_cpus: of each worker.
        num_processes: processes and threads of the whole job.
        must_hold: a job whose limits cannot be enforced does not run. False: it runs without limits, with a message.
    """

    memory_bytes: int | None = None
    num_cpus: float | None = None
    num_processes: int | None = None
    must_hold: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return self.memory_bytes is None and self.num_cpus is None and self.num_processes is None


def read_size(text: str, what: str) -> int:
    """Read a number of bytes with its unit; units are powers of 1024.

    Args:
        text: ``8G``, ``500M``, ``1.5 GiB``.
        what: name of the value, for the message.

    Raises:
        UsageError: the text cannot be read.

    >>> read_size("8G", "the memory"), read_size("1.5 MiB", "the memory")
    (8589934592, 1572864)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"Cannot read {what} '{text[:100]}'. Write a number and a unit, such as 8G or 500M.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def read_cpus(text: str, what: str) -> float:
    """Read a number of CPU cores: ``2``, ``0.5`` or, in thousandths, ``500m``.

    Raises:
        UsageError: the text cannot be read.

    >>> read_cpus("2", "the cores"), read_cpus("250m", "the cores")
    (2.0, 0.25)
    """
    found = _CORES.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"Cannot read {what} '{text[:100]}'. Write a number, such as 2, 0.5 or 500m.")
    return float(found[1]) / (1000 if found[2] else 1)


def render_size(num_bytes: int) -> str:
    """Return a number of bytes for people.

    >>> render_size(8 * 2**30), render_size(1536 * 2**20), render_size(100 * 2**20)
    ('8 GiB', '1.5 GiB', '100 MiB')
    """
    unit, size = ("GiB", 2**30) if num_bytes >= 2**30 else ("MiB", 2**20)
    return f"{num_bytes / size:.4g} {unit}"


def check_limits(memory_bytes: int | None, num_cpus: float | None, told: str) -> None:
    """Raise UsageError unless a worker can run within these limits. ``told``: the beginning of the message."""
    if memory_bytes is not None and memory_bytes < MIN_MEMORY_BYTES:
        raise UsageError(
            f"{told}: memory_bytes={memory_bytes} is below {MIN_MEMORY_BYTES}, which no worker can start with. Give "
            "more, such as 4G with --memory."
        )
    if num_cpus is not None and not num_cpus >= 0.01:
        raise UsageError(f"{told}: num_cpus={num_cpus:g} is below 0.01. Give 0.01 or more.")
