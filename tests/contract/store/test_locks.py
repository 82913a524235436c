"""Transactions that touch the same thing come one after another, on both databases: the first one is held open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import update
from tests.contract.store.making import ADMIN, ANN, NOW, make_job, make_people, make_pool

from legato.control.records import JobPatch, Queue
from legato.control.stages import Stage
from legato.control.store import Store
from legato.control.store.job_rows import lock_job, move_job
from legato.control.store.lease import check_fence
from legato.control.store.schema import queues
from legato.control.store.submit import check_may_use_queue, insert_jobs
from legato.control.store.transactions import Transaction, writing
from legato.core.errors import StaleVersion

BLOCKED_S = 0.3  # a thread that has not finished by then waits for the lock


@pytest.fixture(autouse=True)
def people(store: Store) -> None:
    make_people(store)


@contextmanager
def held_up(store: Store, second: Callable[[], Any]) -> Iterator[tuple[Transaction, list[Any]]]:
    """Open a transaction; at its end see that ``second`` waits for it, and collect what became of it."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(second())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    with writing(store._database, NOW) as transaction:
        yield transaction, outcome
        thread.start()
        thread.join(BLOCKED_S)
        assert thread.is_alive(), f"it did not wait: {outcome}"
    thread.join()


def test_a_job_that_is_being_changed(store: Store) -> None:
    job = store.jobs.submit(make_job(), ANN, NOW).job
    change = JobPatch(priority=1)
    with held_up(store, lambda: store.jobs.change(job.id, change, ANN, NOW, version=1)) as (transaction, outcome):
        locked = lock_job(transaction, job.id, None)
        move_job(transaction, locked, Stage.PAUSED, "r")
    assert isinstance(outcome[0], StaleVersion)
    assert store.jobs.get(job.id).priority == 5000


def test_a_lease_under_which_a_server_writes(store: Store) -> None:
    lease, _ = make_pool(store, 1)
    store.loop.give_up_lease(lease, NOW)
    with held_up(store, lambda: store.loop.take_lease("other", NOW, 10)) as (transaction, outcome):
        check_fence(transaction.connection, lease.fence)
    assert outcome[0].fence == 2


def test_a_queue_into_which_a_user_submits(store: Store) -> None:
    store.queues.put(Queue(name="lab"), ADMIN, NOW)
    with held_up(store, lambda: store.queues.delete("lab", ADMIN, NOW)) as (transaction, outcome):
        check_may_use_queue(transaction, "submit", "lab", ANN)
    assert outcome == [None]
    assert [queue.name for queue in store.queues.list()] == ["default"]


def test_jobs_become_visible_in_the_order_of_their_ids(store: Store) -> None:
    """Although the clock of the server that comes second is behind."""
    with held_up(store, lambda: store.jobs.submit(make_job(), ANN, NOW - 3600)) as (transaction, outcome):
        (first,) = insert_jobs(transaction, [(make_job(), ANN)], lambda _bits: 0)
    assert outcome[0].job.id > first.id
    assert [job.id for job in store.jobs.list().items] == [outcome[0].job.id, first.id]


def test_who_changes_a_queue_and_who_submits_to_it_do_not_wait_for_each_other_forever(store: Store) -> None:
    store.queues.put(Queue(name="lab"), ADMIN, NOW)
    errors: list[Exception] = []

    def run(act: Callable[[], Any]) -> None:
        try:
            for _ in range(20):
                act()
        except Exception as error:
            errors.append(error)

    acts: list[Callable[[], Any]] = [
        lambda: store.jobs.submit(make_job(queue="lab"), ANN, NOW),
        lambda: store.jobs.submit(make_job(queue="lab"), ADMIN, NOW),
        lambda: store.queues.put(Queue(name="lab", weight=2), ADMIN, NOW),
    ]
    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_the_sequence_of_events(store: Store) -> None:
    before = store.events.read_last_seq()
    with held_up(store, lambda: store.events.append("second", "b", NOW)) as (transaction, _):
        transaction.note("first", "a")
        transaction.finish()
        transaction._events.clear()
        # What is not committed is not seen, and its number is not passed by.
        assert store.events.read_after(before) == ()
    assert [(event.seq - before, event.kind) for event in store.events.read_after(before)] == [
        (1, "first"),
        (2, "second"),
    ]


def test_an_error_leaves_nothing_behind(store: Store) -> None:
    before = (store.queues.list(), store.events.read_last_seq())

    def fail() -> None:
        with writing(store._database, NOW) as transaction:
            transaction.connection.execute(update(queues).values(weight=9))
            transaction.note("lost", "r")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (store.queues.list(), store.events.read_last_seq()) == before
