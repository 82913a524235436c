"""The protocol of clocks, which code with deadlines takes as an argument. Reads no clock itself."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Returns seconds that never go backwards; only differences between two values have a meaning."""

    def __call__(self) -> float: ...
