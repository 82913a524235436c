"""Webhooks and their deliveries in the store. Chooses no message and sends none.

A message is written together with the number of the last event that was considered, so a crash neither loses nor
repeats one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, and_, case, delete, func, select, true, update

from legato.api.webhooks import Delivery, Webhook
from legato.control.ids import make_id
from legato.control.records import Job
from legato.control.roles import Asker, Role, check_may_act
from legato.control.stages import HOLDING, UNDECIDED, Stage
from legato.control.store.database import Database
from legato.control.store.job_rows import MOVED, select_jobs
from legato.control.store.lease import check_fence
from legato.control.store.projects import lock_project
from legato.control.store.rows import Unreadable, at, read_all, read_each, read_one, take
from legato.control.store.schema import counters, events, jobs, users, webhook_deliveries, webhooks
from legato.control.store.transactions import EVENTS, Transaction, writing
from legato.control.webhook_records import (
    RETRY_S,
    DueDelivery,
    NewDelivery,
    News,
    Outcome,
    Parcel,
    WatchedWebhook,
    WebhookPatch,
    WebhookSpec,
    check_conditions,
)
from legato.core.errors import BadField, Conflict, NotFound

MAX_WEBHOOKS: Final = 20
"""Webhooks of one user."""
MAX_PENDING: Final = 1_000
"""Messages of one webhook that were not accepted yet. Further ones are dropped, and counted."""
_MAX_HELD_S: Final = 300.0
"""For so long a webhook is held back at most after a try that has failed."""
SECRET_PREFIX: Final = "lgw_"  # noqa: S105 -- scanners for leaked secrets recognise them by it
_SECRET_BITS: Final = 256
_BATCH: Final = 500
_MAX_TESTS: Final = 10  # of one webhook in a minute
_MAX_KEPT_TESTS: Final = 50
_MINUTE_S: Final = 60.0
_TRAINS: Final = HOLDING - UNDECIDED


class _Locked(NamedTuple):
    """What a webhook has, read together with its lock."""

    url: str
    since: float
    tried_at: float | None
    held_until: float | None


class Webhooks:
    """The webhooks of the platform.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits; for ids and secrets.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._random_bits = random_bits
        self._numbers = itertools.count()

    # ------------------------------------------------------------ what users ask for

    def create(self, new: WebhookSpec, asker: Asker, now: float) -> tuple[Webhook, str]:
        """Add a webhook; return it and its secret. It gets messages about what happens from now on.

        Args:
            new: the checked webhook, whose project the asker may see.
            asker: the owner.
            now: seconds since 1970.

        Raises:
            Forbidden: the asker may not change anything.
            Conflict: the asker has the maximum number.
            NotFound: the project was deleted, or the asker does not see it any more.
        """
        check_may_act("add a webhook", asker)
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            # With the lock, other requests that count this user's webhooks come before or after this.
            connection.execute(select(users.c.name).where(users.c.name == asker.name).with_for_update())
            counting = select(func.count()).select_from(webhooks).where(webhooks.c.owner == asker.name)
            if connection.execute(counting).scalar_one() >= MAX_WEBHOOKS:
                raise Conflict(
                    f"Cannot add a webhook: '{asker.name}' has {MAX_WEBHOOKS} already, and no user may have more. "
                    "Remove one that is not needed: 'legato webhooks' lists them."
                )
            if new.project is not None:
                lock_project(transaction, new.project, asker)  # before the sequence, as everywhere
            made = make_id("h", now, self._random_bits, connection.execute(select(func.max(webhooks.c.id))).scalar())
            secret = f"{SECRET_PREFIX}{self._random_bits(_SECRET_BITS):064x}"
            transaction.audit(asker.name, "webhook.create", made, {"project": new.project})
            transaction.lock_sequence()
            seen = _read_last_event(connection)
            row = msgspec.to_builtins(new) | {"id": made, "owner": asker.name, "secret": secret, "created_at": now}
            connection.execute(webhooks.insert(), row | {"seen_seq": seen, "num_dropped": 0})
            return _get(connection, made, asker), secret

    def change(self, webhook: str, patch: WebhookPatch, asker: Asker, now: float) -> Webhook:
        """Change a webhook. Its secret stays. What is pending is sent to a new URL at once.

        Messages about the jobs of another project are given up, and a new project and ``waiting_s`` hold for what
        happens from now on.

        Args:
            webhook: its id.
            patch: the changes; its URL was checked, and the asker may see its project.
            asker: the owner or an admin.
            now: seconds since 1970.

        Raises:
            NotFound: there is none that the asker may see.
            Forbidden: the asker may not change anything.
            BadField: the webhook would never be called, or for jobs that its owner does not see.
        """
        doing = f"change webhook '{webhook[:100]}'"
        check_may_act(doing, asker)
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            if isinstance(patch.project, str):
                self._lock_project_of(transaction, webhook, patch.project, asker)  # before the webhook, as everywhere
            _lock(connection, [webhook])
            found = _get(connection, webhook, asker)
            old = WebhookSpec(
                url=found.url,
                project=found.project,
                news=tuple(News(one) for one in found.on),
                below_workers=found.below_workers,
                waiting_s=found.waiting_s,
            )
            new = patch.apply(old)
            check_conditions("change it to a webhook", new)
            before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
            changed = {name: value for name, value in after.items() if value != before[name]}
            if not changed:
                return found
            # The audit log names the fields: a URL can contain a secret.
            transaction.audit(asker.name, "webhook.change", webhook, {"owner": found.owner, "fields": sorted(changed)})
            values: dict[str, Any] = dict(changed)
            if "project" in changed:
                values["seen_seq"] = _read_last_event(connection)
                _give_up_pending(connection, webhook, now)
            if "project" in changed or "waiting_s" in changed:
                values["conditions_since"] = now
            if "url" in changed:
                values |= {"url_since": now, "held_until": None}
                _send_pending_at_once(connection, webhook, now)
            connection.execute(update(webhooks).where(webhooks.c.id == webhook).values(values))
            return _get(connection, webhook, asker)

    @staticmethod
    def _lock_project_of(transaction: Transaction, webhook: str, project: str, asker: Asker) -> None:
        """Lock the new project of a webhook. Raises BadField unless its owner sees the project."""
        owner = _get(transaction.connection, webhook, asker).owner
        role = transaction.connection.execute(select(users.c.role).where(users.c.name == owner)).scalar_one()
        try:
            lock_project(transaction, project, Asker(owner, Role(role)))
        except NotFound:
            raise BadField(
                "project",
                f"Cannot change webhook '{webhook}': its owner '{owner}' does not see this project. Add '{owner}' to "
                "the project's members first.",
            ) from None

    def remove(self, webhook: str, asker: Asker, now: float) -> None:
        """Remove a webhook with its deliveries.

        Raises:
            NotFound: there is none that the asker may see.
            Forbidden: the asker may not change anything.
        """
        check_may_act("remove a webhook", asker)
        with writing(self._database, now) as transaction:
            found = _get(transaction.connection, webhook, asker)
            transaction.audit(asker.name, "webhook.delete", webhook, {"owner": found.owner})
            transaction.connection.execute(delete(webhooks).where(webhooks.c.id == webhook))

    def list(self, asker: Asker) -> tuple[Webhook, ...]:
        """Return the webhooks of a user, or for admins those of all users, the newest first."""
        statement = _select_webhooks().where(_is_own(asker)).order_by(webhooks.c.id.desc())
        with self._database.reading() as connection:
            return read_all(connection, statement, Webhook)

    def get(self, webhook: str, asker: Asker) -> Webhook:
        """Return a webhook.

        Raises:
            NotFound: there is none that the asker may see.
        """
        with self._database.reading() as connection:
            return _get(connection, webhook, asker)

    def list_deliveries(self, webhook: str, limit: int) -> tuple[Delivery, ...]:
        """Return the last deliveries of a webhook, the newest first."""
        of = webhook_deliveries.c
        names = Delivery.__struct_fields__
        columns = [column for column in of if column.name in names]
        order = (of.created_at.desc(), of.id.desc())
        statement = select(*columns, _STATE).where(of.webhook == webhook).order_by(*order).limit(limit)
        with self._database.reading() as connection:
            return read_all(connection, statement, Delivery)

    def pack_test(self, webhook: str, body: str, delivery: str, now: float) -> Parcel:
        """Return what is needed to send a test. Nothing is stored.

        Args:
            webhook: its id.
            body: of the message.
            delivery: id of the message.
            now: seconds since 1970.

        Raises:
            NotFound: the webhook was removed.
            Conflict: it was tested too often in the last minute.
        """
        of = webhook_deliveries.c
        lately = select(func.count()).where(
            of.webhook == webhook, of.event == News.TEST, of.created_at > now - _MINUTE_S, of.created_at <= now
        )
        columns = (webhooks.c.url, webhooks.c.secret, webhooks.c.owner, users.c.role)
        joined = select(*columns).join(users, users.c.name == webhooks.c.owner)
        with self._database.reading() as connection:
            found = connection.execute(joined.where(webhooks.c.id == webhook)).first()
            num = connection.execute(lately).scalar_one()
        if found is None:
            raise _missing(webhook)
        if num >= _MAX_TESTS:
            raise Conflict(f"Webhook '{webhook}' was tested {num} times in the last minute. Wait for a minute.")
        return Parcel(
            id=delivery,
            webhook=webhook,
            event=News.TEST,
            url=found.url,
            secret=found.secret,
            body=body,
            num_tries=0,
            created_at=now,
            owner=found.owner,
            role=Role(found.role),
        )

    def record_test(self, parcel: Parcel, outcome: Outcome, asker: Asker, now: float) -> Delivery:
        """Record a test that was sent, and return it. If it was accepted, what is pending is sent again at once.

        Raises:
            NotFound: the webhook was removed meanwhile.
            Conflict: it got another URL meanwhile.
        """
        with writing(self._database, now) as transaction:
            locked = _lock(transaction.connection, [parcel.webhook])
            if not locked:
                raise _missing(parcel.webhook)
            if locked[parcel.webhook].url != parcel.url:
                raise Conflict(f"Webhook '{parcel.webhook}' got another URL while the test was sent. Test it again.")
            _delete_old_tests(transaction.connection, parcel.webhook)
            row = _as_row(parcel.id, parcel.webhook, parcel.id, News.TEST, None, parcel.body, now)
            row |= {"num_tries": 1, "tried_at": now, "next_at": None, "done_at": now}
            transaction.connection.execute(webhook_deliveries.insert(), row | msgspec.structs.asdict(outcome))
            transaction.audit(asker.name, "webhook.test", parcel.webhook)
            of = webhook_deliveries.c
            if outcome.error is None:
                its = update(webhooks).where(webhooks.c.id == parcel.webhook)
                transaction.connection.execute(its.values(held_until=None))
                _send_pending_at_once(transaction.connection, parcel.webhook, now)
            columns = [column for column in of if column.name in Delivery.__struct_fields__]
            found = read_one(transaction.connection, select(*columns, _STATE).where(of.id == parcel.id), Delivery)
            assert found is not None, f"delivery {parcel.id} is gone in the transaction that made it"
            return found

    def make_delivery_id(self, now: float) -> str:
        """Return an id for a new delivery. Those of one process sort in the order of their creation."""
        number = next(self._numbers) % 2**16
        return f"m-{int(now * 1000):012x}{number:04x}{self._random_bits(64):016x}"

    # ------------------------------------------------------------ what is found

    def list_watched(self) -> tuple[WatchedWebhook, ...]:
        """Return all webhooks. Rows that cannot be read are left out."""
        names = WatchedWebhook.__struct_fields__
        columns = [column for column in webhooks.c if column.name in names]
        statement = select(*columns, users.c.role, users.c.disabled_at).order_by(webhooks.c.id)
        joined = statement.join(users, users.c.name == webhooks.c.owner)
        with self._database.reading() as connection:
            found = read_each(connection, joined, WatchedWebhook)
        return tuple(one for one in found if not isinstance(one, Unreadable))

    def read_jobs(self, these: Collection[str]) -> dict[str, Job]:
        """Return jobs by their ids. Deleted ones and those that cannot be read are left out."""
        ids, found = sorted(these), dict[str, Job]()
        with self._database.reading() as connection:
            for first in range(0, len(ids), _BATCH):
                statement = select_jobs().where(jobs.c.id.in_(ids[first : first + _BATCH]))
                read = read_each(connection, statement, Job)
                found |= {job.id: job for job in read if isinstance(job, Job)}
        return found

    def list_queued(self, after: float, before: float) -> tuple[Job, ...]:
        """Return the jobs that have waited in their queues since a time in this period; its end is included."""
        statement = select_jobs().where(
            jobs.c.stage == Stage.QUEUED, jobs.c.staged_at > after, jobs.c.staged_at <= before
        )
        with self._database.reading() as connection:
            found = read_each(connection, statement.order_by(jobs.c.staged_at, jobs.c.id), Job)
        return tuple(job for job in found if isinstance(job, Job))

    def read_slots_before(self, job: str, seq: int) -> int | None:
        """Return how many slots a job should have had before an event, if it trained then and ever since.

        None: the job did not train, was queued or paused since the last decision, or there was no decision.
        """
        earlier = select(events.c.kind, events.c.detail).where(events.c.job == job, events.c.seq < seq)
        order = events.c.seq.desc()
        moves = earlier.where(events.c.kind == MOVED).order_by(order).limit(1)
        is_break = and_(events.c.kind == MOVED, at(events.c.detail, "to").as_string().not_in(_TRAINS))
        either = earlier.where((events.c.kind == _DECISION) | is_break).order_by(order).limit(1)
        with self._database.reading() as connection:
            last = connection.execute(moves).first()
            found = connection.execute(either).first()
        if last is None or found is None or not isinstance(last.detail, dict) or last.detail.get("to") not in _TRAINS:
            return None
        if found.kind != _DECISION or not isinstance(found.detail, dict):
            return None
        slots: object = found.detail.get("num_slots")
        return slots if isinstance(slots, int) else None

    def add(
        self,
        new: Iterable[NewDelivery],
        upto: int | None,
        fence: int,
        now: float,
        these: Mapping[str, float] = MappingProxyType({}),
    ) -> int:
        """Write messages to send, and that the events up to ``upto`` were considered; return how many are new.

        One transaction writes all, so pass at most a thousand messages: the loop needs the store for its lease.

        Args:
            new: the messages. One whose cause its webhook has already is left out.
            upto: number of the last event that was considered. None: no event was, or more messages follow.
            these: the webhooks for which the events were considered, and since when they had their conditions then.
                One that was added meanwhile is not among them. For one whose conditions were changed meanwhile
                nothing is written: the next round considers the events again.
            fence: of the loop's lease.
            now: seconds since 1970.

        Raises:
            FencedOut: another loop has the lease; nothing was written.
        """
        of_webhook: dict[str, list[NewDelivery]] = {}
        for one in new:
            of_webhook.setdefault(one.webhook, []).append(one)
        num = 0
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            check_fence(connection, fence)
            locked = _lock(connection, {*of_webhook, *these})
            same = {name for name, row in locked.items() if these.get(name, row.since) == row.since}
            pending = _count_pending(connection, same & of_webhook.keys())
            for webhook, num_pending in pending.items():
                by_cause = {one.cause: one for one in of_webhook[webhook]}
                known = _find_known(connection, webhook, list(by_cause))
                fresh = [one for cause, one in by_cause.items() if cause not in known]
                sent = fresh[: max(MAX_PENDING - num_pending, 0)]
                rows = [_as_row(one.id, one.webhook, one.cause, one.event, one.job, one.body, now) for one in sent]
                if rows:
                    connection.execute(webhook_deliveries.insert(), rows)
                num += len(rows)
                if lost := len(fresh) - len(sent):
                    more = {"num_dropped": webhooks.c.num_dropped + lost}
                    connection.execute(update(webhooks).where(webhooks.c.id == webhook).values(more))
            if upto is not None:
                behind = (webhooks.c.seen_seq < upto) & webhooks.c.id.in_(sorted(same & these.keys()))
                connection.execute(update(webhooks).where(behind).values(seen_seq=upto))
        return num

    # ------------------------------------------------------------ what is sent

    def list_due(self, now: float) -> tuple[DueDelivery, ...]:
        """Return the first due message of each webhook that is not held back, the webhook that waits longest first."""
        of = webhook_deliveries.c
        # A time that is too far ahead was written before the clock was set back.
        first = (
            select(of.id)
            .where(of.webhook == webhooks.c.id, (of.next_at <= now) | (of.next_at > now + max(RETRY_S)))
            .order_by(of.next_at, of.created_at, of.id)
            .limit(1)
            .correlate(webhooks)
            .scalar_subquery()
        )
        held = webhooks.c.held_until
        statement = (
            select(first.label("delivery"), webhooks.c.id, webhooks.c.owner)
            .join(users, users.c.name == webhooks.c.owner)
            .where(users.c.disabled_at.is_(None), held.is_(None) | (held <= now) | (held > now + _MAX_HELD_S))
            .order_by(func.coalesce(webhooks.c.tried_at, 0.0), webhooks.c.id)
        )
        with self._database.reading() as connection:
            return tuple(DueDelivery(*row) for row in connection.execute(statement) if row.delivery is not None)

    def pack(self, delivery: str) -> Parcel | None:
        """Return what is needed to send a message. None: it was removed, accepted or given up."""
        of = webhook_deliveries.c
        columns = [of.id, of.webhook, of.event, of.body, of.num_tries, of.created_at]
        columns += [webhooks.c.url, webhooks.c.secret, webhooks.c.owner, webhooks.c.project, users.c.role]
        statement = select(*columns).join(webhooks, webhooks.c.id == of.webhook)
        statement = statement.join(users, users.c.name == webhooks.c.owner)
        with self._database.reading() as connection:
            return read_one(connection, statement.where(of.id == delivery, of.next_at.is_not(None)), Parcel)

    def record(self, parcel: Parcel, outcome: Outcome, next_at: float | None, fence: int, now: float) -> None:
        """Record a try to send a message. After one that has failed, the webhook is held back, for longer each time.

        If the webhook got another URL during the try, a failure says nothing about the new URL: nothing is written,
        and the message stays pending.

        Args:
            parcel: the message.
            outcome: of the try.
            next_at: when it is sent again. None: it was accepted, or is given up.
            fence: of the loop's lease.
            now: seconds since 1970.

        Raises:
            FencedOut: another loop has the lease; nothing was written.
        """
        of = webhook_deliveries.c
        values: dict[str, Any] = msgspec.structs.asdict(outcome)
        values |= {"num_tries": of.num_tries + 1, "tried_at": now, "next_at": next_at}
        values["done_at"] = now if next_at is None else None
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            check_fence(connection, fence)
            its = webhooks.c.id == parcel.webhook
            last = _lock(connection, [parcel.webhook]).get(parcel.webhook)
            held_until = None
            if outcome.error is not None:
                if last is not None and last.url != parcel.url:
                    return
                before_s = (last.held_until or 0.0) - (last.tried_at or 0.0) if last is not None else 0.0
                held_until = now + min(max(RETRY_S[0], 2 * before_s), _MAX_HELD_S)
            connection.execute(update(webhooks).where(its).values(tried_at=now, held_until=held_until))
            this = (of.id == parcel.id, of.next_at.is_not(None))
            connection.execute(update(webhook_deliveries).where(*this).values(values))


_DECISION: Final = "decision"
_OTHER_PROJECT: Final = "the webhook was changed to another project"
_STATE: Final = case(
    (webhook_deliveries.c.next_at.is_not(None), "pending"),
    (webhook_deliveries.c.error.is_(None), "delivered"),
    else_="failed",
).label("state")


def _select_webhooks() -> Select[Any]:
    of = webhook_deliveries.c
    mine = select(func.count()).select_from(webhook_deliveries).where(of.webhook == webhooks.c.id)
    counted: Mapping[str, ColumnElement[bool]] = {
        "num_pending": of.next_at.is_not(None),
        "num_failed": and_(of.next_at.is_(None), of.error.is_not(None), of.event != News.TEST),
    }
    names = Webhook.__struct_fields__
    tried = select(of.tried_at, of.error).where(of.webhook == webhooks.c.id, of.tried_at.is_not(None))
    # What became of tries of an earlier URL says nothing about this one.
    last = tried.where(of.tried_at >= webhooks.c.url_since).order_by(of.tried_at.desc(), of.id.desc()).limit(1)
    return select(
        *(column for column in webhooks.c if column.name in names and column.name != "tried_at"),
        *(
            last.with_only_columns(column).correlate(webhooks).scalar_subquery().label(column.name)
            for column in (of.tried_at, of.error)
        ),
        webhooks.c.news.label("on"),
        *(mine.where(which).correlate(webhooks).scalar_subquery().label(name) for name, which in counted.items()),
    )


def _is_own(asker: Asker) -> ColumnElement[bool]:
    return true() if asker.role is Role.ADMIN else webhooks.c.owner == asker.name


def _get(connection: Connection, webhook: str, asker: Asker) -> Webhook:
    statement = _select_webhooks().where(webhooks.c.id == webhook, _is_own(asker))
    found = read_each(connection, statement, Webhook)
    if not found:
        raise _missing(webhook)
    return take(found[0], f"use webhook '{webhook}'")


def _lock(connection: Connection, these: Iterable[str]) -> dict[str, _Locked]:
    """Lock those of the webhooks that exist, so that nothing changes them before the end of the transaction."""
    of = webhooks.c
    columns = (of.id, of.url, of.conditions_since, of.tried_at, of.held_until)
    statement = select(*columns).where(of.id.in_(sorted(these))).order_by(of.id).with_for_update()
    return {name: _Locked(*row) for name, *row in connection.execute(statement)}


def _read_last_event(connection: Connection) -> int:
    found: int = connection.execute(select(counters.c.value).where(counters.c.name == EVENTS)).scalar_one()
    return found


def _send_pending_at_once(connection: Connection, webhook: str, now: float) -> None:
    of = webhook_deliveries.c
    connection.execute(update(webhook_deliveries).where(of.webhook == webhook, of.next_at > now).values(next_at=now))


def _give_up_pending(connection: Connection, webhook: str, now: float) -> None:
    """Give up the messages about the jobs of the project that a webhook had: its owner may not see them any more."""
    of = webhook_deliveries.c
    pending = update(webhook_deliveries).where(of.webhook == webhook, of.next_at.is_not(None))
    connection.execute(pending.values(next_at=None, done_at=now, status=None, error=_OTHER_PROJECT))


def _count_pending(connection: Connection, these: Iterable[str]) -> dict[str, int]:
    of = webhook_deliveries.c
    counts = dict.fromkeys(these, 0)
    statement = select(of.webhook, func.count().label("num")).where(
        of.webhook.in_(list(counts)), of.next_at.is_not(None)
    )
    return counts | {row.webhook: row.num for row in connection.execute(statement.group_by(of.webhook))}


def _find_known(connection: Connection, webhook: str, causes: list[str]) -> set[str]:
    of, known = webhook_deliveries.c, set[str]()
    for first in range(0, len(causes), _BATCH):
        these = of.cause.in_(causes[first : first + _BATCH])
        known |= set(connection.execute(select(of.cause).where(of.webhook == webhook, these)).scalars())
    return known


def _as_row(
    delivery: str, webhook: str, cause: str, event: News, job: str | None, body: str, now: float
) -> dict[str, Any]:
    row = {"id": delivery, "webhook": webhook, "cause": cause, "event": event, "job": job, "body": body}
    return row | {"created_at": now, "num_tries": 0, "next_at": now}


def _delete_old_tests(connection: Connection, webhook: str) -> None:
    """Leave room for one more test of a webhook."""
    of = webhook_deliveries.c
    tests = select(of.id).where(of.webhook == webhook, of.event == News.TEST)
    old = tests.order_by(of.created_at.desc(), of.id.desc()).offset(_MAX_KEPT_TESTS - 1).limit(_OLD_BATCH)
    connection.execute(delete(webhook_deliveries).where(of.id.in_(list(connection.execute(old).scalars()))))


def delete_old_deliveries(transaction: Transaction, before: float) -> bool:
    """Delete deliveries that were accepted or given up before a time, and return whether there may be more of them.

    Those that report a job that still waits stay, because it would be reported again otherwise.
    """
    of = webhook_deliveries.c
    waits = select(jobs.c.id).where(jobs.c.id == of.job, jobs.c.stage == Stage.QUEUED).correlate(webhook_deliveries)
    may_go = (of.event != News.WAITING) | ~waits.exists()
    old = select(of.id).where(of.done_at < before, may_go).limit(_OLD_BATCH)
    return transaction.connection.execute(delete(webhook_deliveries).where(of.id.in_(old))).rowcount >= _OLD_BATCH


_OLD_BATCH: Final = 10_000


def _missing(webhook: str) -> NotFound:
    return NotFound(
        f"There is no webhook '{webhook[:100]}' that you may see. 'legato webhooks' lists those that you may."
    )
