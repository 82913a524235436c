"""Server-sent events: the format of messages, and the end of a stream.

This is not sse-starlette, because its import replaces a method of uvicorn, and because its pings do not check whether a
reader may still read the stream.
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
    # Encoded JSON contains no line break, so one data line is enough.
    return b"%bevent: %b\ndata: %b\n\n" % (named, event.encode(), msgspec.json.encode(data))


def wants_stream(request: Request) -> bool:
    """Return whether the request asks for a stream, by its header ``Accept``."""
    return MEDIA_TYPE in request.headers.get("accept", "").lower()


def stream(messages: AsyncIterator[bytes], here: Services, request: Request) -> StreamingResponse:
    """Return the answer that sends messages as they come. A header asks proxies not to buffer them.

    Args:
        messages: the messages of the stream.
        here: what the routes use.
        request: the request for the stream. From now on it counts as a stream, and no longer as a request.

    Raises:
        Problem: the user has the maximum number of streams.
    """
    end = here.authenticator.begin_stream(request.state.asker.name)
    request.state.end_work()
    return _Stream(_until_store_fails(messages), end)


class _Stream(StreamingResponse):
    """A stream that counts for its user until it ends, for whatever reason."""

    def __init__(self, messages: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        super().__init__(messages, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _until_store_fails(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the messages. End the stream when the store cannot be read; a client that reconnects continues there."""
    try:
        async for message in messages:
            yield message
            # Sending does not wait. This lets the event loop notice that the client has disconnected.
            await asyncio.sleep(0)
    except StoreError as error:
        _log.warning("a stream ended, because the server cannot read the store", error=str(error))


class Watch:
    """Checks during a stream whether its user may still read it, and whether its job has ended.

    A stream is open for a long time. Meanwhile the token may expire or be revoked, the user's role may change, and the
    user may leave the queue of the job.

    Args:
        here: what the routes use.
        asker: the user of the stream, with the role at its beginning.
        secret: the token of the request.
        job: id of the job that the stream is about. None: the stream is about everything that the user may see.

    Attributes:
        sees_only: `Asker.sees_only` of the user at the last check.
    """

    def __init__(self, here: Services, asker: Asker, secret: str, job: str | None) -> None:
        self._here = here
        self._secret = secret
        self._job = job
        self.sees_only = asker.sees_only
        self._clock = asyncio.get_running_loop().time
        self._checked_at = self._clock()

    @property
    def left_s(self) -> float:
        """Seconds until the next check, and the next heartbeat."""
        return max(self._checked_at + HEARTBEAT_S - self._clock(), 0.0)

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next check, and the next heartbeat."""
        return self.left_s <= 0

    async def is_admitted(self) -> bool:
        """Return whether the token is still valid, and its user may still see the job. Reads the store."""
        self._checked_at = self._clock()
        asker = await self._here.authenticator.recognize_again(self._secret)
        if asker is None:
            return False
        self.sees_only = asker.sees_only
        if self._job is None:
            return True
        looking = functools.partial(self._here.store.jobs.which_visible, {self._job}, asker.sees_only)
        return bool(await self._here.feed.in_thread(looking))

    async def has_ended(self) -> bool:
        """Return whether the job has ended or was deleted."""
        assert self._job is not None, "all jobs together have no end"
        try:
            found = await self._here.feed.in_thread(functools.partial(self._here.store.jobs.get, self._job))
        except NotFound:
            return True
        return found.stage in ENDED
