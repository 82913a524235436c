"""Server-sent events: how a stream is written, and when it ends. Knows nothing of what is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import StreamingResponse

from legato.control.stages import ENDED
from legato.core.errors import NotFound, StoreError
from legato.server.services import Services

_log = structlog.get_logger(__name__)

HEARTBEAT_S: Final = 15.0
HEARTBEAT: Final = b": still here\n\n"
END: Final = b"event: end\ndata: {}\n\n"
MEDIA_TYPE: Final = "text/event-stream"


def render_message(data: Any, *, event: str, message_id: str) -> bytes:
    r"""Return one message.

    >>> render_message({"a": 1}, event="stage", message_id="7")
    b'id: 7\nevent: stage\ndata: {"a":1}\n\n'
    """
    # JSON has no line break outside of texts, and none inside of them: it needs one data line.
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (message_id.encode(), event.encode(), msgspec.json.encode(data))


def wants_stream(request: Request) -> bool:
    """Return whether the asker wants to follow."""
    return MEDIA_TYPE in request.headers.get("accept", "").lower()


def stream(messages: AsyncIterator[bytes]) -> StreamingResponse:
    """Return the answer that sends messages as they come. Proxies are asked not to hold them back."""
    return StreamingResponse(_until_away(messages), media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


async def _until_away(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """End where the store cannot be read: who connects again goes on there."""
    try:
        async for message in messages:
            yield message
    except StoreError as error:
        _log.warning("a stream was ended, because the store cannot be read", error=str(error))


class Watch:
    """Watches over one stream: whether its reader is still admitted, and whether there is anything left to tell.

    Args:
        here: what the routes stand on.
        secret: the token that was shown; a stream is open for long, and the token may expire or be revoked meanwhile.
    """

    def __init__(self, here: Services, secret: str) -> None:
        self._here = here
        self._secret = secret
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
        """Look up whether the token is valid."""
        self._asked_at = self._clock()
        return await self._here.gatekeeper.is_still_valid(self._secret)

    async def has_ended(self, job: str) -> bool:
        """Return whether a job has ended, or is gone."""
        try:
            found = await self._here.feed.in_thread(lambda: self._here.store.jobs.get(job))
        except NotFound:
            return True
        return found.stage in ENDED
