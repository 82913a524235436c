"""Who asks: the token of a request, and how often it may come. Decides nothing about what may be done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, Request

from legato.control.credentials import hash_secret
from legato.control.roles import Asker
from legato.control.settings import Settings
from legato.control.store import Store
from legato.core.errors import Unauthenticated
from legato.server.limits import Limiter
from legato.server.problems import too_many
from legato.server.recognized import Recognized

_STREAM_AGAIN_S: Final = 5


class Gatekeeper:
    """Knows who asks by the token shown.

    Args:
        store: which knows the tokens.
        settings: how often they may come.
        now: seconds since 1970.
    """

    def __init__(self, store: Store, settings: Settings, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._recognized = Recognized()
        self._of_token = Limiter(settings.requests_per_s, settings.requests_burst)
        self._refused = Limiter(settings.requests_per_s, settings.requests_burst)
        self._max_streams = settings.max_streams
        self._streams: Counter[str] = Counter()
        self._logins = Limiter(settings.logins_per_minute / 60, max(settings.logins_per_minute, 1))

    async def recognize(self, secret: str, address: str) -> Asker:
        """Return who shows a token.

        Raises:
            Unauthenticated: it is not valid.
            Problem: it comes too often.
        """
        key, now = hash_secret(secret), self._now()
        wait_s = self._of_token.take(key, now)
        if wait_s is not None:
            raise too_many("This token asks more often than it may. Wait, and ask for more at once.", wait_s)
        known = self._recognized.find(key, now)
        if known is not None:
            return known
        begun = self._recognized.begin()
        try:
            asker = await asyncio.to_thread(self._store.tokens.verify, secret, now)
        except Unauthenticated:
            wait_s = self._refused.take(address, now)
            if wait_s is not None:
                raise too_many("This address shows too many tokens that are not valid. Log in anew.", wait_s) from None
            raise
        self._recognized.keep(key, asker, now, begun)
        return asker

    def forget(self) -> None:
        """Ask the store again who shows which token: one was revoked, or a user may less than before."""
        self._recognized.forget()

    async def recognize_again(self, secret: str) -> Asker | None:
        """Return who shows a token that was good when a stream began, as that is now; None: it is good no more."""
        try:
            return await asyncio.to_thread(self._store.tokens.verify, secret, self._now())
        except Unauthenticated:
            self.forget()
            return None

    def begin_stream(self, secret: str) -> Callable[[], None]:
        """Count a stream of a token, and return what is to be called at its end.

        Raises:
            Problem: the token has as many as it may.
        """
        key = hash_secret(secret)
        if self._streams[key] >= self._max_streams:
            raise too_many(
                f"This token follows {self._streams[key]} streams at once, and may no more. End some of them, or let "
                "the operator raise max_streams.",
                _STREAM_AGAIN_S,
            )
        self._streams[key] += 1

        def end() -> None:
            self._streams[key] -= 1
            if not self._streams[key]:
                del self._streams[key]

        return end

    def begin_login(self, address: str) -> None:
        """Count an attempt to log in.

        Raises:
            Problem: there were too many that failed.
        """
        wait_s = self._logins.take(address, self._now())
        if wait_s is not None:
            raise too_many("Too many attempts to log in have failed. Wait before the next one.", wait_s)

    def end_login(self, address: str) -> None:
        """Forget an attempt to log in that succeeded."""
        self._logins.give_back(address)


async def _read_asker(request: Request) -> Asker:
    state: Any = request.state
    asker: Asker = state.asker
    return asker


WhoAsks = Annotated[Asker, Depends(_read_asker)]
"""The parameter of a route that is who asks, as the door has found out."""
