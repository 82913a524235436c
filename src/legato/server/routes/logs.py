"""Routes of a job's logs: list them, read parts of them, search them, and follow them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API
from legato.api.outputs import Log
from legato.core.errors import UsageError
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.log_search import FoundLines, Level, LogPlace, find_place, search_log
from legato.server.logs import MAX_BYTES, Place, Reader, is_log, list_logs, read_piece, read_place, render_place
from legato.server.services import Here, Services
from legato.server.streams import END, HEARTBEAT, Watch, render_message, stream, wants_stream

router = APIRouter(prefix=API, tags=["logs"])

_POLL_S: Final = 0.3
_MAX_LINES: Final = 1_000_000
_MAX_OFFSET: Final = 2**53
_MAX_ID_LENGTH: Final = 2**14
_SHORT: Final = 500
_MAX_FOUND: Final = 10_000
_MAX_TIME: Final = 1e12

Tail = Annotated[int | None, Query(ge=0, le=_MAX_LINES)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=_MAX_ID_LENGTH)]


class Lines(msgspec.Struct, frozen=True):
    """Text that was added to one log."""

    log: str
    text: str


@router.get("/jobs/{job}/logs", **responses(Listed[Log], errors=(404,)))
async def list_logs_of_job(
    job: str,
    request: Request,
    here: Here,
    asker: CurrentUser,
    log: Annotated[list[str] | None, Query(max_length=100)] = None,
    tail: Tail = None,
    follow: bool = True,
    last_event_id: LastEventId = None,
) -> Response:
    """List a job's logs, or stream them with ``Accept: text/event-stream``; ``follow=false``: only existing lines."""
    found = await run_in_threadpool(here.store.jobs.find, job, asker)
    root = here.directory(found)
    if not wants_stream(request):
        return Answer(Listed(await run_in_threadpool(list_logs, root)))
    for name in log or ():
        if not is_log(name):
            raise UsageError(f"Cannot follow the log '{name[:100]}': logs are called 'driver' and 'worker-N'.")
    place = read_place(last_event_id) if last_event_id else Place({})
    reader = Reader(root, log or (), place, is_bounded=not follow)
    if tail is not None and not last_event_id:
        await here.feed.in_thread(functools.partial(reader.skip_to_tail, tail))
    watch = Watch(here, asker, request.state.secret, found.id)
    return stream(_follow(here, watch, reader, is_over=not follow), here, request)


@router.get("/jobs/{job}/logs/{log}", **responses(None, errors=(404,), content_type="text/plain"))
def get_log(
    job: str,
    log: str,
    here: Here,
    asker: CurrentUser,
    tail: Tail = None,
    offset: Annotated[int | None, Query(ge=0, le=_MAX_OFFSET)] = None,
    max_bytes: Annotated[int, Query(ge=1, le=MAX_BYTES)] = MAX_BYTES,
) -> Response:
    """Return a part of a log, exactly as it was written."""
    if tail is not None and offset is not None:
        raise UsageError("Cannot read the log: tail and offset exclude each other. Send one of them.")
    found = here.store.jobs.find(job, asker)
    piece = read_piece(here.directory(found), log, offset=offset or 0, tail=tail, max_bytes=max_bytes)
    headers = {"Legato-Log-Offset": str(piece.first), "Legato-Log-End": str(piece.end)}
    return Response(piece.content, headers=headers, media_type="text/plain")


@router.get("/jobs/{job}/logs/{log}/search", **responses(FoundLines, errors=(404,)))
def search_log_of_job(
    job: str,
    log: str,
    here: Here,
    asker: CurrentUser,
    contains: Annotated[str, Query(max_length=1000)] = "",
    level: Level | None = None,
    after: Annotated[int, Query(ge=0, le=_MAX_OFFSET)] = 0,
    limit: Annotated[int, Query(ge=1, le=_MAX_FOUND)] = 500,
) -> Response:
    """Find lines of a log by their text and level."""
    found = here.store.jobs.find(job, asker)
    return Answer(search_log(here.directory(found), log, contains=contains, level=level, after=after, limit=limit))


@router.get("/jobs/{job}/logs/{log}/at", **responses(LogPlace, errors=(404,)))
def find_place_in_log(
    job: str,
    log: str,
    here: Here,
    asker: CurrentUser,
    time: Annotated[float, Query(ge=0, le=_MAX_TIME, allow_inf_nan=False)],
) -> Response:
    """Find the line of a log that was being written at a given time."""
    found = here.store.jobs.find(job, asker)
    return Answer(find_place(here.directory(found), log, time))


async def _follow(here: Services, watch: Watch, reader: Reader, *, is_over: bool) -> AsyncIterator[bytes]:
    has_ended = is_over
    with here.feed.following():
        while not here.feed.is_closing:
            if watch.is_due:
                if not await watch.is_admitted():
                    return
                yield HEARTBEAT
            added = await here.feed.in_thread(functools.partial(reader.read, is_last=has_ended))
            for addition in added:
                reader.note(addition)
                lines = Lines(addition.log, addition.text)
                message_id = _make_message_id(reader, is_last=addition is added[-1])
                yield render_message(lines, event="log", message_id=message_id)
            if added:
                continue
            if has_ended:
                yield END
                return
            # Checked before the logs are read for the last time, so that no earlier line is missed.
            has_ended = await watch.has_ended()
            if not has_ended:
                await asyncio.sleep(_POLL_S)


def _make_message_id(reader: Reader, *, is_last: bool) -> str | None:
    """Return the id of the message with the text that the reader noted last. None: the message has no id.

    With many logs, an id is longer than most messages. Then only the last message of a batch (``is_last``) has one, and
    a client that continues after an interruption gets some messages again.
    """
    message_id = render_place(reader.place)
    return message_id if len(message_id) <= (_MAX_ID_LENGTH if is_last else _SHORT) else None
