"""Gives events to streams: one task reads the store for all of them, and keeps the newest events in memory.

Several servers may write events, so the task polls the store. A change in this process makes it read at once. A client
that continues after older events than those in memory gets them from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple, TypeVar

import structlog

from legato.api.jobs import Event
from legato.control.store import LEAVER, PROJECT, QUEUE, Store

_log = structlog.get_logger(__name__)

_NUM_KEPT: Final = 10_000
_NUM_READ: Final = 1_000
_GATHER_S: Final = 0.03

_T = TypeVar("_T")


class Batch(NamedTuple):
    """Events for a follower. ``upto``: number of the last event that was considered; continue after it."""

    events: tuple[Event, ...]
    upto: int


class Feed:
    """Gives events to followers.

    Args:
        store: the store with the events.
        readers: threads that read for followers.
        poll_s: seconds between two reads of the store.
    """

    def __init__(self, store: Store, readers: Executor, *, poll_s: float = 0.5) -> None:
        self._store = store
        self._readers = readers
        self._poll_s = poll_s
        self._recent: list[Event] = []
        self._last: int | None = None  # not known yet
        self._poked = asyncio.Event()
        # What followers wait for. Not a condition, whose lock and timeout cost more per follower than the event itself.
        self._waiting: set[asyncio.Future[None]] = set()
        self.is_closing = False
        self.num_followers = 0

    async def run(self) -> None:
        """Read new events until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._poked.wait()
            self._poked.clear()
            try:
                if self._last is None:
                    self._move_on(await self.in_thread(self._store.events.read_last_seq))
                else:
                    await self._read_new(self._last)
            except Exception:  # noqa: BLE001 -- the store may be unreachable for a while; followers wait
                _log.exception("the server could not read events")
            # Wait a moment, so that events that come in quick succession are read together.
            await asyncio.sleep(_GATHER_S)

    def poke(self) -> None:
        """Read the store soon, because there may be new events. Call this in the thread of the event loop."""
        self._poked.set()

    def close(self) -> None:
        """End the streams of all followers. Call this in the thread of the event loop."""
        self.is_closing = True
        self._wake_followers()

    @property
    def last(self) -> int:
        """The number of the newest event that was read for followers. 0: none was."""
        return self._last or 0

    async def read_last(self) -> int:
        """Return the number of the newest event in the store."""
        return await self.in_thread(self._store.events.read_last_seq)

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Count a follower during the block."""
        self.num_followers += 1
        try:
            yield
        finally:
            self.num_followers -= 1

    async def read(
        self, seq: int, *, limit: int, job: str | None, sees_only: str | None, from_store: bool = False
    ) -> Batch:
        """Return the events after ``seq`` that a user may see, oldest first.

        Args:
            seq: ``upto`` of the batch before.
            limit: maximum number of events.
            job: only events of this job; the caller has checked that the user may see it. None: of all.
            sees_only: `Asker.sees_only` of the user.
            from_store: read the store, to get all events up to now. False: events in memory may be a moment old.
        """
        last, recent = self._last or 0, self._recent
        if not from_store and recent and seq >= recent[0].seq - 1:
            newer = recent[max(seq + 1 - recent[0].seq, 0) :]
            if job is not None:
                found = tuple(event for event in newer if event.job == job)[:limit]
            elif sees_only is None:
                found = tuple(newer[:limit])
            else:
                return await self._read_visible(newer, seq, limit, sees_only)
        else:
            reading = functools.partial(self._store.events.read_after, seq, limit=limit, job=job, sees_only=sees_only)
            found = await self.in_thread(reading)
        if len(found) == limit:
            return Batch(found, found[-1].seq)
        return Batch(found, max(seq, last, found[-1].seq if found else 0))

    async def _read_visible(self, newer: Sequence[Event], seq: int, limit: int, sees_only: str) -> Batch:
        """Return those of these events that a user may see. Reads from the store only the objects that they name."""
        found: list[Event] = []
        for first in range(0, len(newer), _NUM_READ):
            part = newer[first : first + _NUM_READ]
            jobs = {event.job for event in part if event.job is not None}
            asking = functools.partial(self._store.jobs.which_visible, jobs, sees_only)
            seen = await self.in_thread(asking) if jobs else frozenset()
            projects = {project for event in part if (project := _project_of(event)) is not None}
            asking = functools.partial(self._store.projects.which_visible, projects, sees_only)
            seen |= await self.in_thread(asking) if projects else frozenset()
            queues = {queue for event in part if (queue := _queue_of(event)) is not None}
            asking = functools.partial(self._store.queues.which_visible, queues, sees_only)
            seen_queues = await self.in_thread(asking) if queues else frozenset()
            visible = {None, *seen}
            found += [
                event
                for event in part
                if (_queue_of(event) in seen_queues or _was_open(event))
                or (
                    event.kind != QUEUE
                    and ((event.job or _project_of(event)) in visible or _leaver_of(event) == sees_only)
                )
            ]
            if len(found) >= limit:
                return Batch(tuple(found[:limit]), found[limit - 1].seq)
        return Batch(tuple(found), newer[-1].seq if newer else seq)

    async def wait_beyond(self, seq: int, limit_s: float) -> bool:
        """Wait for an event after ``seq``. Return False if none came within the limit, or the feed is closing."""
        running = asyncio.get_running_loop()
        deadline = running.time() + limit_s
        while not (self._is_beyond(seq) or self.is_closing) and running.time() < deadline:
            waiting = running.create_future()
            timer = running.call_at(deadline, _wake, waiting)
            self._waiting.add(waiting)
            try:
                await waiting
            finally:
                timer.cancel()
                self._waiting.discard(waiting)
        return self._is_beyond(seq) and not self.is_closing

    def _is_beyond(self, seq: int) -> bool:
        return self._last is not None and self._last > seq

    async def _read_new(self, last: int) -> None:
        reading = functools.partial(self._store.events.read_after, last, limit=_NUM_READ)
        found = await self.in_thread(reading)
        if not found:
            return
        is_next = not self._recent or found[0].seq == self._recent[-1].seq + 1
        # The sequence has no gaps, so the index of an event is the difference of its number and the first one.
        self._recent = [*(self._recent if is_next else []), *found][-_NUM_KEPT:]
        self._move_on(found[-1].seq)
        if len(found) == _NUM_READ:
            self._poked.set()

    def _move_on(self, last: int) -> None:
        self._last = last
        self._wake_followers()

    def _wake_followers(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            _wake(one)

    async def in_thread(self, reading: Callable[[], _T]) -> _T:
        """Call a function that reads, in one of the threads for followers."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, reading)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():  # its follower may be gone
        waiting.set_result(None)


def _project_of(event: Event) -> str | None:
    """Return the project of an event. None: it has none."""
    return event.detail["project"] if event.kind == PROJECT and event.detail else None


def _queue_of(event: Event) -> str | None:
    """Return the queue of an event. None: it has none, or an older version of Legato wrote it without the queue."""
    return event.detail.get("queue") if event.kind == QUEUE and event.detail else None


def _was_open(event: Event) -> bool:
    """Return whether an event is about a queue that was open to all users when the event was written."""
    return event.kind == QUEUE and bool(event.detail and event.detail.get("is_open"))


def _leaver_of(event: Event) -> str | None:
    """Return the user who can no longer see a project because of this event, and who gets the event. None: no user."""
    return event.detail.get(LEAVER) if event.kind == PROJECT and event.detail else None
