"""Finds what webhooks report, and sends it until the receiver accepts it or the server gives up.

Only the leading server does so. All that matters is in the store: a message is written before it is sent, and stays
until it was accepted. So a crash can repeat a message, with the same id, but not lose one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import structlog

from legato.api.jobs import Event
from legato.control.records import Job
from legato.control.roles import Asker
from legato.control.stages import ENDED, Stage
from legato.control.store import MAX_PENDING
from legato.control.webhook_records import DueDelivery, NewDelivery, News, Outcome, WatchedWebhook
from legato.core.errors import FencedOut, StoreError
from legato.server.services import Services
from legato.server.webhook_messages import (
    Watched,
    choose_news,
    crosses,
    describe_end,
    describe_shrink,
    describe_wait,
    encode,
    next_try,
)

_log = structlog.get_logger(__name__)

ROUND_S: Final = 1.0
NUM_AT_ONCE: Final = 16
"""Messages that are being sent at once."""
NUM_OF_OWNER: Final = 2
"""Of these, messages to webhooks of one user, so that slow receivers of one do not hold up those of others."""
_PAUSE_S: Final = 30.0
_NUM_AT_A_TIME: Final = 1_000
"""Messages that one transaction writes: others need the store too, first of all for the lease of the control loop."""
_UNSEEN: Final = "its owner does not see the project any more"
_NUM_EVENTS: Final = 1_000
_MOVED: Final = "stage"
_DECIDED: Final = "decision"


class _Found(NamedTuple):
    """A message to a webhook, before it is written."""

    webhook: WatchedWebhook
    cause: str
    event: News
    job: Job
    text: str
    fields: dict[str, Any]


class WebhookLoop:
    """The loop that serves all webhooks of the platform.

    Args:
        services: of the server.
    """

    def __init__(self, services: Services) -> None:
        self._here = services
        self._waits_upto = -math.inf  # waits that were too long by then have been found
        self._sending: dict[str, tuple[str, asyncio.Task[None]]] = {}  # webhook → owner, and the task that sends
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Serve webhooks until cancelled."""
        try:
            while True:
                try:
                    await self.round()
                except FencedOut:
                    _log.info("another server decides now, and serves the webhooks")
                except Exception as error:  # noqa: BLE001 -- the next round begins from the store again
                    expected = isinstance(error, StoreError)
                    _log.warning("a round of the webhooks failed", error=str(error), exc_info=not expected)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ROUND_S):
                        await self._woken.wait()
                self._woken.clear()
        finally:
            tasks = [task for _, task in self._sending.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def round(self) -> None:
        """Write what is new, and begin to send what is due, if this server leads.

        Raises:
            FencedOut: another server leads by now.
            StoreError: the store cannot be used.
        """
        lease = await asyncio.to_thread(self._here.read_own_lease)
        if lease is None:
            self._waits_upto = -math.inf  # another server may go on meanwhile
            return
        try:
            await asyncio.to_thread(self.find, lease.fence)
        except (FencedOut, StoreError):
            raise
        except Exception:  # noqa: BLE001 -- what was found before is sent all the same
            _log.exception("the server could not find what webhooks report")
        due = await asyncio.to_thread(self._here.store.webhooks.list_due, self._here.now())
        self._begin(due, lease.fence)

    async def drain(self) -> None:
        """Wait until all messages that are being sent were accepted or refused."""
        await asyncio.gather(*(task for _, task in self._sending.values()))

    # ------------------------------------------------------------ what is new

    def find(self, fence: int) -> int:
        """Write the messages about all that has happened, and return how many are new. Blocks.

        Raises:
            FencedOut: another server leads by now.
            StoreError: the store cannot be used.
        """
        store, num = self._here.store, 0
        while True:
            these = store.webhooks.list_watched()
            if not these:
                return num
            events = store.events.read_after(min(one.seen_seq for one in these), limit=_NUM_EVENTS)
            if events:
                num += self._add(self._find_in(events, these), events[-1].seq, fence, these)
            if len(events) < _NUM_EVENTS:
                return num + self._find_waits(these, fence)

    def _add(self, found: Iterable[_Found], upto: int | None, fence: int, these: Sequence[WatchedWebhook]) -> int:
        """Write messages, and in the last transaction that the events up to ``upto`` were considered for these."""
        new, num = self._write(self._keep_visible(found)), 0
        read = {one.id: one.conditions_since for one in these}
        while True:
            part = list(itertools.islice(new, _NUM_AT_A_TIME))
            is_last = len(part) < _NUM_AT_A_TIME
            if part or upto is not None:
                done = upto if is_last else None
                num += self._here.store.webhooks.add(part, done, fence, self._here.now(), read)
            if is_last:
                return num

    def _find_in(self, events: Sequence[Event], these: Sequence[WatchedWebhook]) -> Iterator[_Found]:
        watched = Watched(these)
        shrinkable = any(one.below_workers is not None for one in these)
        wanted = [event for event in events if _read_end(event) is not None or (shrinkable and event.kind == _DECIDED)]
        jobs = self._here.store.webhooks.read_jobs({event.job for event in wanted if event.job is not None})
        for event in wanted:
            job = jobs.get(event.job or "")
            if job is None:
                continue  # deleted meanwhile, or unreadable
            fresh = [one for one in watched.of(job) if one.seen_seq < event.seq]
            try:
                found = list(self._find_of(event, job, fresh))
            except StoreError:
                raise
            except Exception:  # noqa: BLE001 -- a damaged job or event must not keep all others from being reported
                _log.warning("an event cannot be reported to webhooks", event_seq=event.seq, job=job.id, exc_info=True)
                continue
            yield from found

    def _find_of(self, event: Event, job: Job, these: Sequence[WatchedWebhook]) -> Iterator[_Found]:
        stage = _read_end(event)
        if stage is None:
            yield from self._find_shrink(event, job, these)
            return
        for one in these:
            news = choose_news(one, stage)
            if news is not None:
                yield _Found(one, f"e{event.seq}", news, job, *describe_end(job, stage, event))

    def _find_shrink(self, event: Event, job: Job, these: Iterable[WatchedWebhook]) -> Iterator[_Found]:
        slots = (event.detail or {}).get("num_slots")
        bounds = [(one, one.below_workers) for one in these if one.below_workers is not None]
        if not isinstance(slots, int) or not bounds:
            return
        after = slots // job.gpus_per_worker
        if all(after >= below for _, below in bounds):
            return
        slots_before = self._here.store.webhooks.read_slots_before(job.id, event.seq)
        if slots_before is None:
            return
        before = slots_before // job.gpus_per_worker
        for one, below in bounds:
            if crosses(before, after, below):
                told = describe_shrink(job, event, before, after, below)
                yield _Found(one, f"e{event.seq}", News.SHRUNK, job, *told)

    def _find_waits(self, these: Sequence[WatchedWebhook], fence: int) -> int:
        """Write the messages about jobs that wait for too long by now; return how many are new."""
        limits = {one.waiting_s for one in these if one.waiting_s is not None and one.disabled_at is None}
        now, since = self._here.now(), self._waits_upto
        if since > now:
            since = -math.inf  # the clock was set back
        num = 0
        if limits:
            # Once after another server has led: all that wait. Later one short period for each limit.
            periods = [(since - limit, now - limit) for limit in limits]
            if since == -math.inf:
                periods = [(since, now - min(limits))]
            queued = (job for period in periods for job in self._here.store.webhooks.list_queued(*period))
            jobs = {job.id: job for job in queued}
            num = self._add(_list_waits(jobs.values(), Watched(these), since, now), None, fence, these)
        self._waits_upto = now
        return num

    def _keep_visible(self, found: Iterable[_Found]) -> Iterator[_Found]:
        """Yield the messages about jobs that the owners of the webhooks may still see."""
        sees: dict[str, bool] = {}  # by webhook
        for one in found:
            webhook = one.webhook
            if webhook.id not in sees:
                sees[webhook.id] = self._sees(webhook.asker, webhook.project)
            if sees[webhook.id]:
                yield one

    def _sees(self, owner: Asker, project: str | None) -> bool:
        """Return whether the owner of a webhook may still see its project. Blocks."""
        return project is None or bool(self._here.store.projects.which_visible({project}, owner.sees_only))

    def _write(self, found: Iterable[_Found]) -> Iterator[NewDelivery]:
        num = Counter[str]()
        for one in found:
            num[one.webhook.id] += 1
            made = self._here.store.webhooks.make_delivery_id(self._here.now())
            # The store drops and counts those beyond the maximum, which need no body.
            body = ""
            if num[one.webhook.id] <= MAX_PENDING:
                body = encode(made, one.event, one.text, one.fields, self._here.link_job(one.job.id))
            yield NewDelivery(
                id=made, webhook=one.webhook.id, cause=one.cause, event=one.event, job=one.job.id, body=body
            )

    # ------------------------------------------------------------ what is sent

    def _begin(self, due: Iterable[DueDelivery], fence: int) -> None:
        """Begin to send messages: one of each webhook at once, and not too many of one user."""
        busy = Counter(owner for owner, _ in self._sending.values())
        for one in due:
            if len(self._sending) >= NUM_AT_ONCE:
                return
            if one.webhook in self._sending or busy[one.owner] >= NUM_OF_OWNER:
                continue
            busy[one.owner] += 1
            task = asyncio.create_task(self._send(one, fence), name=f"webhook {one.webhook}")
            self._sending[one.webhook] = one.owner, task

    async def _send(self, due: DueDelivery, fence: int) -> None:
        store = self._here.store
        try:
            parcel = await asyncio.to_thread(store.webhooks.pack, due.id)
            if parcel is None:
                return  # removed meanwhile
            if await asyncio.to_thread(self._sees, Asker(parcel.owner, parcel.role), parcel.project):
                outcome = await self._here.webhook_sender.send(parcel)
                now = self._here.now()
                again_at = next_try(outcome, parcel.num_tries + 1, parcel.created_at, now)
            else:
                outcome, now, again_at = Outcome(None, _UNSEEN), self._here.now(), None
            await asyncio.to_thread(store.webhooks.record, parcel, outcome, again_at, fence, now)
            if outcome.error is not None and again_at is None:
                _log.info("a message to a webhook is given up", webhook=due.webhook, error=outcome.error)
        except FencedOut:
            _log.info("another server decides now, and serves the webhooks")
        except Exception as error:  # noqa: BLE001 -- any error, such as that of a full disk, must not repeat it at once
            expected = isinstance(error, StoreError)
            told = "a message to a webhook could not be sent or recorded"
            _log.warning(told, webhook=due.webhook, error=str(error), exc_info=not expected)
            await asyncio.sleep(_PAUSE_S)
        finally:
            del self._sending[due.webhook]
            self._woken.set()


def _read_end(event: Event) -> Stage | None:
    """Return the stage in which a job has ended by an event. None: it has not."""
    to = (event.detail or {}).get("to") if event.kind == _MOVED else None
    return Stage(to) if isinstance(to, str) and to in ENDED else None


def _list_waits(jobs: Iterable[Job], watched: Watched, since: float, now: float) -> Iterator[_Found]:
    """Yield the waits that have become too long: after ``since``, after the webhook got its conditions, until now."""
    for job in jobs:
        for one in watched.of(job):
            if one.waiting_s is None:
                continue
            at = job.staged_at + one.waiting_s
            if max(one.created_at, one.conditions_since, since) < at <= now:
                cause = f"w{job.id}@{job.staged_at:.3f}"
                yield _Found(one, cause, News.WAITING, job, *describe_wait(job, one.waiting_s, now))
