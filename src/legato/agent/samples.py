"""Samples of what programs use on an agent's machine. Reports and beats carry them, and never wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from legato.core.system_metrics import MEASURE_EVERY_S, SystemSample
from legato.engines.local import LocalEngine


class Samples:
    """The newest sample, until it is taken."""

    def __init__(self) -> None:
        self._newest: SystemSample | None = None

    def take(self) -> SystemSample | None:
        """Return the newest sample once; None: there is no new one."""
        newest, self._newest = self._newest, None
        return newest

    async def measure_forever(self, measure: Callable[[], Awaitable[SystemSample]]) -> None:
        """Take a sample every ``MEASURE_EVERY_S``.

        Args:
            measure: takes one.
        """
        while True:
            sample = await measure()
            if sample != SystemSample():
                self._newest = sample
            await asyncio.sleep(MEASURE_EVERY_S)


async def measure_for(engine: LocalEngine | None) -> SystemSample:
    """Return a sample of an engine's machine and workers. None: the job is not open here yet."""
    return SystemSample() if engine is None else (await engine.measure())[""]
