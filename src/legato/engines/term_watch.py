"""Watches the term of a job, so that a driver notices when another one has replaced it. Renews nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from typing import Final

from legato.core.clock import Clock
from legato.core.errors import Superseded
from legato.system.clocks import read_boot_clock

_log = logging.getLogger(__name__)

TERM_LIMIT_S: Final = 5.0
"""A driver that has not read its term for so long renews no leases."""

_TERM_EVERY_S: Final = 1.0


class TermWatch:
    """Reads the highest term of a job's drivers once a second.

    Args:
        read_term: returns that term; may block and raise OSError. None: there is nothing to watch, because a lock
            prevents a second driver.
        fail: called with the error when the term is higher than the driver's; from any thread.
        is_superseded: returns whether the driver already knows that another one has replaced it.
        clock: monotonic seconds; None: a clock that, as those of agents, also runs while the machine is suspended.
    """

    def __init__(
        self,
        read_term: Callable[[], int] | None,
        fail: Callable[[Superseded], None],
        is_superseded: Callable[[], bool],
        clock: Clock | None = None,
    ) -> None:
        self.term = 0
        """Of this driver."""
        self._read_term = read_term
        self._fail = fail
        self._is_superseded = is_superseded
        self._clock = clock or read_boot_clock
        self._read_at = -math.inf

    @property
    def renewed_s(self) -> float:
        """For how long an earlier driver that was cut off may have renewed leases."""
        return 0.0 if self._read_term is None else TERM_LIMIT_S

    def may_renew(self) -> bool:
        """Return whether this driver surely led the job a moment ago, so that agents may go on with its workers."""
        return self._read_term is None or self._clock() - self._read_at < TERM_LIMIT_S

    async def watch(self) -> None:
        """Read the term until another driver has replaced this one."""
        while self._read_term is not None:
            began = self._clock()
            try:
                term = await asyncio.to_thread(self._read_term)
            except OSError as error:
                _log.warning("Cannot read the term of the job: %s", error)
            else:
                self._read_at = began
                self._check(term)
            if self._is_superseded():
                return
            await asyncio.sleep(_TERM_EVERY_S)

    def look(self) -> None:
        """Read the term now, if it can be read; may block. It renews no lease."""
        if self._read_term is not None:
            with contextlib.suppress(OSError):
                self._check(self._read_term())

    def _check(self, term: int) -> None:
        if term > self.term and not self._is_superseded():
            self._fail(Superseded(f"Another driver has taken over the job: it has term {term}."))
