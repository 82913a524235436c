"""Virtual time for asyncio: each sleeper wakes at the right moment, and no real time passes. Knows no jobs.

When nothing is left to do at a moment, the clock jumps to the next one at which a task wants to wake. So hours pass
in milliseconds, and the same program runs the same way every time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.DefaultSelector):
    """Looks for input as before, but lets the clock jump where it would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout is None or timeout <= 0:
            assert found or timeout is not None, "all simulated parts wait, so the simulation cannot continue"
            return found
        self.now += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose seconds take no time. It begins at 0."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the virtual moment."""
        return self._skipping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time.

    >>> async def sleep_long() -> float:
    ...     await asyncio.sleep(3600)
    ...     return asyncio.get_running_loop().time()
    >>> run(sleep_long())
    3600.0
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now() -> float:
    """Return the moment on the clock of the running loop."""
    return asyncio.get_running_loop().time()
