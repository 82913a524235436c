"""Time as an argument: the protocol that everything with deadlines takes. Reads no clock itself."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Returns seconds that never go backwards; only differences mean anything."""

    def __call__(self) -> float: ...
