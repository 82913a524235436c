"""Server-sent events: format and end of a stream. Knows nothing of the content.

Not sse-starlette: its import replaces a method of uvicorn, and its pings do not check whether a reader is admitted.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from legato.control.roles import Asker
from legato.control.stages import ENDED
from legato.core.errors import NotFound, StoreError
from legato.server.services import Services

_log = structlog.get_logger(__name__)

HEARTBEAT_S: Final = 15.0
HEARTBEAT: Final = b": still here\n\n"
END: Final = b"event: end\ndata: {}\n\n"
MEDIA_TYPE: Final = "text/event-stream"


def render_message(data: Any, *, event: str, message_id: str | None) -> bytes:
    r"""Return one message. Without an id, a client continues after the last message that has one.

    >>> render_message({"a": 1}, event="stage", message_id="7")
    b'id: 7\nevent: stage\ndata: {"a":1}\n\n'
    """
    named = b"" if message_id is None else b"id: %b\n" % message_id.encode()
    # JSON has no line break outside of texts, and none inside of them: it needs one data line.
    return b"%bevent: %b\ndata: %b\n\n" % (named, event.encode(), msgspec.json.encode(data))


def wants_stream(request: Request) -> bool:
    """Return whether the asker wants to follow."""
    return MEDIA_TYPE in request.headers.get("accept", "").lower()


def stream(messages: AsyncIterator[bytes], here: Services, request: Request) -> StreamingResponse:
    """Return the answer that sends messages as they come. Proxies are asked not to hold them back.

    Args:
        messages: not begun yet.
        here: what the routes stand on.
        request: that asks for it. It counts as a stream from now on, and as a request no more.

    Raises:
        Problem: the user has as many streams as may be.
    """
    end = here.authenticator.begin_stream(request.state.asker.name)
    request.state.end_work()
    return _Stream(_until_away(messages), end)


class _Stream(StreamingResponse):
    """A stream that is counted until it ends, however it does."""

    def __init__(self, messages: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        super().__init__(messages, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _until_away(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """End where the store cannot be read: who connects again continues there."""
    try:
        async for message in messages:
            yield message
            # Sending does not wait, so only now can we notice that the reader is gone.
            await asyncio.sleep(0)
    except StoreError as error:
        _log.warning("a stream ended, because the server cannot read the store", error=str(error))


class Watch:
    """Watches over one stream: whether its reader is still admitted, and whether there is anything left to tell.

    A stream is open for long. Meanwhile the token may expire or be revoked, its user's role may change, and the user
    may leave the queue of the job.

    Args:
        here: what the routes stand on.
        asker: who follows, as that was when the stream began.
        secret: the token that was shown.
        job: of which the stream tells. None: of all that may be seen.

    Attributes:
        sees_only: as everywhere in the store; as it is by now.
    """

    def __init__(self, here: Services, asker: Asker, secret: str, job: str | None) -> None:
        self._here = here
        self._secret = secret
        self._job = job
        self.sees_only = asker.sees_only
        self._clock = asyncio.get_running_loop().time
        self._asked_at = self._clock()

    @property
    def left_s(self) -> float:
        """Seconds until the token is looked at again, and a sign of life is due."""
        return max(self._asked_at + HEARTBEAT_S - self._clock(), 0.0)

    @property
    def is_due(self) -> bool:
        """Whether it is time to do so."""
        return self.left_s <= 0

    async def is_admitted(self) -> bool:
        """Look up whether the token is valid, and whether its user may still see the job."""
        self._asked_at = self._clock()
        asker = await self._here.authenticator.recognize_again(self._secret)
        if asker is None:
            return False
        self.sees_only = asker.sees_only
        if self._job is None:
            return True
        looking = functools.partial(self._here.store.jobs.which_visible, {self._job}, asker.sees_only)
        return bool(await self._here.feed.in_thread(looking))

    async def has_ended(self) -> bool:
        """Return whether the job has ended, or is gone."""
        assert self._job is not None, "all jobs together have no end"
        try:
            found = await self._here.feed.in_thread(functools.partial(self._here.store.jobs.get, self._job))
        except NotFound:
            return True
        return found.stage in ENDED
