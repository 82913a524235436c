"""Samples of what programs use on an agent's machine. Reports and beats carry them, and never wait for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from legato.core.system_metrics import MEASURE_EVERY_S, SystemSample
from legato.engines.local import LocalEngine

_log = logging.getLogger(__name__)


class Samples:
    """The newest sample, until it is taken."""

    def __init__(self) -> None:
        self._newest: SystemSample | None = None

    def take(self) -> SystemSample | None:
        """Return the newest sample once; None: there is no new one."""
        newest, self._newest = self._newest, None
        return newest

    async def measure_forever(self, measure: Callable[[], Awaitable[SystemSample]]) -> None:
        """Take a sample every ``MEASURE_EVERY_S``. A sample that fails is left out, whatever its error.

        Args:
            measure: takes one.
        """
        while True:
            try:
                sample = await measure()
            except Exception:  # noqa: BLE001 -- the agent must go on
                _log.debug("This machine cannot be measured", exc_info=True)
                sample = SystemSample()
            if sample != SystemSample():
                self._newest = sample
            await asyncio.sleep(MEASURE_EVERY_S)


async def measure_for(engine: LocalEngine | None) -> SystemSample:
    """Return a sample of an engine's machine and workers. None: the job is not open here yet."""
    return SystemSample() if engine is None else (await engine.measure())[""]
