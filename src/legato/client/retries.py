"""Retries: the pauses between them, when to give up, whether a server is silent. Sends no requests.

The libraries tenacity and stamina would save little: Legato would still have to write the wait that a server asks for,
and a patience that each answer restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from legato.core.clock import Clock
from legato.core.errors import LegatoError, Unavailable

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0


class NotTrusted(Unavailable):
    """The server's certificate is not trusted, so retries do not help."""


class Outage:
    """Reports once when a server stops answering, and once when it answers again.

    Args:
        report: called with True when the server stops answering, and with False when it answers again.
    """

    def __init__(self, report: Callable[[bool], None]) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._is_silent = False
        self.has_heard = False

    def hear(self) -> None:
        """Record an answer."""
        with self._lock:
            was_silent, self._is_silent, self.has_heard = self._is_silent, False, True
            if was_silent:
                self._report(False)

    def miss(self) -> None:
        """Record a try without an answer."""
        with self._lock:
            if self.has_heard and not self._is_silent:
                self._is_silent = True
                self._report(True)


class Tries:
    """A series of tries of one request, with pauses that double, until the patience has ended.

    Args:
        clock: monotonic seconds.
        sleep: waits a number of seconds.
        draw: returns a random number from 0 to 1.
        first_patience_s: seconds until the series is given up, before the first answer.
        patience_s: seconds until the series is given up, after each answer.
    """

    def __init__(
        self,
        clock: Clock,
        sleep: Callable[[float], None],
        draw: Callable[[], float],
        first_patience_s: float,
        patience_s: float,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._draw = draw
        self._until = clock() + first_patience_s
        self._patience_s = patience_s
        self._num_tries = 0

    def go_on(self) -> None:
        """Restart the patience after an answer; the pauses keep their length."""
        self._until = self._clock() + self._patience_s

    def wait(self, refusal: LegatoError, cause: BaseException | None, said_s: float | None = None) -> None:
        """Wait before the next try; raise the refusal if there is no time for one.

        Args:
            refusal: of this try.
            cause: of the refusal.
            said_s: seconds for which the server asks to wait. None: it does not ask.
        """
        # Half of the pause is random, so that clients which lost the server together do not all come back together.
        pause_s = min(_FIRST_PAUSE_S * 2**self._num_tries, _LONGEST_PAUSE_S) * (0.5 + self._draw() / 2)
        self._num_tries += 1
        pause_s = pause_s if said_s is None else said_s
        if isinstance(refusal, NotTrusted) or self._clock() + pause_s > self._until:
            raise refusal from cause
        self._sleep(pause_s)
