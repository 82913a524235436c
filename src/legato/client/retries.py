"""Retries: the pauses between them, when to give up, whether a server is silent. Sends no requests.

Not tenacity or stamina: the wait that a server asks for, and a patience that each answer restarts, would be ours too.
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
    """Waiting does not help."""


class Outage:
    """Tells once that a server which has answered does not any more, and once that it does again.

    Args:
        tell: called with True when it falls silent, with False when it is heard again.
    """

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._is_silent = False
        self.has_heard = False

    def hear(self) -> None:
        """Note an answer."""
        with self._lock:
            was_silent, self._is_silent, self.has_heard = self._is_silent, False, True
            if was_silent:
                self._tell(False)

    def miss(self) -> None:
        """Note a try that had no answer."""
        with self._lock:
            if self.has_heard and not self._is_silent:
                self._is_silent = True
                self._tell(True)


class Tries:
    """Tries in a row for one thing: pauses that double, until the patience is at its end."""

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
        """Wait before the next try, or raise the refusal where there is no time for one.

        Args:
            refusal: of this try.
            cause: of the refusal.
            said_s: how long the server asks to wait. None: it does not say.
        """
        # Half of the pause is drawn, so that those who were cut off together do not come back together.
        pause_s = min(_FIRST_PAUSE_S * 2**self._num_tries, _LONGEST_PAUSE_S) * (0.5 + self._draw() / 2)
        self._num_tries += 1
        pause_s = pause_s if said_s is None else said_s
        if isinstance(refusal, NotTrusted) or self._clock() + pause_s > self._until:
            raise refusal from cause
        self._sleep(pause_s)
