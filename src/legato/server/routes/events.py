"""Routes of the platform's events: as pages, with waiting for new ones, and as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API
from legato.api.jobs import Event
from legato.control.roles import Asker
from legato.server.answers import Answer, responses
from legato.server.authentication import CurrentUser
from legato.server.problems import Problem
from legato.server.services import Here, Services
from legato.server.streams import END, HEARTBEAT, Watch, render_message, stream, wants_stream

T = TypeVar("T")

router = APIRouter(prefix=API, tags=["events"])

_MAX_SEQ: Final = 2**53
_MAX_WAIT_S: Final = 60.0
_BATCH: Final = 500
_NOW: Final = "now"
_STAGE: Final = "stage"
_CHUNK_BYTES: Final = 2**14

After = Annotated[str | None, Query(max_length=20, pattern=r"^([0-9]+|now)$")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Wait = Annotated[float, Query(ge=0, le=_MAX_WAIT_S, allow_inf_nan=False)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=1000)]


class EventPage(msgspec.Struct, Generic[T], frozen=True):
    """A part of a sequence of events. ``after``: send this number as ``after`` to get the next part."""

    items: tuple[T, ...]
    after: int


@dataclass(frozen=True)
class _View:
    """Which events a request asks for, and for whom.

    Args:
        job: id of the job whose events are wanted; the route has checked that the user may see it. None: all events.
        asker: the user who sends the request, with the role of the token.
        secret: the token of the request.
    """

    job: str | None
    asker: Asker
    secret: str


@router.get("/events", **responses(EventPage[Event]))
async def list_events(
    request: Request,
    here: Here,
    asker: CurrentUser,
    after: After = None,
    limit: Limit = _BATCH,
    wait: Wait = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """List the events that you may see, or stream them with ``Accept: text/event-stream``."""
    view = _View(None, asker, request.state.secret)
    return await _answer(request, here, view, last_event_id or after, limit, wait)


@router.get("/jobs/{job}/events", **responses(EventPage[Event], errors=(404,)))
async def list_events_of_job(
    job: str,
    request: Request,
    here: Here,
    asker: CurrentUser,
    after: After = None,
    limit: Limit = _BATCH,
    wait: Wait = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """List the events of one job, or stream them with ``Accept: text/event-stream``."""
    found = await run_in_threadpool(here.store.jobs.find, job, asker)
    view = _View(found.id, asker, request.state.secret)
    return await _answer(request, here, view, last_event_id or after, limit, wait)


async def _answer(
    request: Request, here: Services, view: _View, after: str | None, limit: int, wait_s: float
) -> Response:
    seq = await _read_seq(here, after)
    if wants_stream(request):
        return stream(_follow(here, view, seq), here, request)
    sees_only = view.asker.sees_only
    part = await here.feed.read(seq, limit=limit, job=view.job, sees_only=sees_only)
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    # An event that the asker may not see does not end the waiting.
    while not part.events and await here.feed.wait_beyond(part.upto, deadline - clock()):
        part = await here.feed.read(part.upto, limit=limit, job=view.job, sees_only=sees_only)
    return Answer(EventPage(part.events, part.upto))


async def _read_seq(here: Services, after: str | None) -> int:
    if after is None:
        return 0
    if after == _NOW:
        return await here.feed.read_last()
    if not (after.isascii() and after.isdecimal()) or int(after) > _MAX_SEQ:
        raise Problem("bad-request", "Cannot read 'Last-Event-ID': send the id of an event unchanged.")
    return int(after)


async def _follow(here: Services, view: _View, seq: int) -> AsyncIterator[bytes]:
    watch = Watch(here, view.asker, view.secret, view.job)
    has_ended, may_have_ended = False, view.job is not None
    with here.feed.following():
        while not here.feed.is_closing:
            if watch.is_due:
                if not await watch.is_admitted():
                    return
                yield HEARTBEAT
            # After the end of a job, read from the store, so that no event of the job is missed.
            part = await here.feed.read(
                seq, limit=_BATCH, job=view.job, sees_only=watch.sees_only, from_store=has_ended
            )
            seq = part.upto
            if part.events:
                for chunk in _render(part.events):
                    yield chunk
                may_have_ended |= view.job is not None and any(event.kind == _STAGE for event in part.events)
                continue
            if has_ended:
                yield END
                return
            if may_have_ended:
                may_have_ended, has_ended = False, await watch.has_ended()
            else:
                await here.feed.wait_beyond(seq, watch.left_s)


def _render(events: Sequence[Event]) -> Iterator[bytes]:
    """Yield the messages of events, several together: to send costs much more than to render, and hundreds may follow.

    Not all together: a slow client keeps what it was sent in the server's memory, and the notes of a job may be long.
    """
    chunk = b""
    for one in events:
        chunk += render_message(one, event=one.kind, message_id=str(one.seq))
        if len(chunk) >= _CHUNK_BYTES:
            yield chunk
            chunk = b""
    if chunk:
        yield chunk
