"""Figures of the platform: jobs by stage, what is in each queue, and which jobs a user may see."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import event
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ADMIN, ANN, BEN, NOW, make_job, make_people, make_pool, start, write

from legato.control.records import Holder, Queue, QueueLoad
from legato.control.stages import Stage
from legato.control.store import Store, jobs


def test_jobs_and_queues_in_numbers(store: Store) -> None:
    make_people(store)
    lease, slots = make_pool(store, 4)
    assert store.queues.measure() == {}
    assert store.jobs.count_by_stage() == {}
    store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    anns = [store.jobs.submit(make_job(), ANN, NOW).job for _ in range(3)]
    bens = store.jobs.submit(make_job(queue="closed"), BEN, NOW).job
    start(store, lease.fence, anns[0], (slots[0], slots[1]))
    ended = start(store, lease.fence, anns[1], (slots[2],))
    write(store, lease.fence, ended, stage=Stage.SUCCEEDED, closed=(slots[2],), reason="done")
    starting = write(store, lease.fence, bens, stage=Stage.STARTING, granted=(slots[2],), reason="starts")
    assert store.queues.measure() == {
        "default": QueueLoad(num_slots=2, num_holding=1, num_queued=1),
        "closed": QueueLoad(num_slots=1, num_holding=1, num_queued=0),
    }
    assert store.jobs.count_by_stage() == {
        Stage.RUNNING: 1,
        Stage.SUCCEEDED: 1,
        Stage.QUEUED: 1,
        Stage.STARTING: 1,
    }
    assert store.jobs.count_by_stage(sees_only="ann") == {Stage.RUNNING: 1, Stage.SUCCEEDED: 1, Stage.QUEUED: 1}
    everything = {job.id for job in (*anns, starting)} | {"j-0000000000"}
    assert store.jobs.which_visible(everything, None) == everything
    assert store.jobs.which_visible(everything, "ann") == {job.id for job in anns}
    assert store.jobs.which_visible(everything, "ben") == {job.id for job in (*anns, starting)}
    assert store.jobs.which_visible((), "ann") == frozenset()


def test_many_jobs_are_asked_for_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_BATCH", 2)
    make_people(store)
    made = {store.jobs.submit(make_job(), ANN, NOW).job.id for _ in range(5)}
    assert store.jobs.which_visible(made, "ann") == made


def test_what_ended_long_ago_costs_nothing(new_sqlite_url: NewUrl) -> None:
    """What each round reads, and what people look at all the time, is found by an index; by SQLite's own account."""
    with open_quickly(new_sqlite_url()) as store:
        make_people(store)
        engine, asked = store._database._engine, []

        def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_more: Any) -> None:
            if statement.startswith("SELECT"):
                asked.append((statement, values))

        event.listen(engine, "before_cursor_execute", note)
        store.loop.read_facts()
        store.queues.measure()
        store.pool.list_between(NOW - 3600, NOW)
        store.pool.measure_usage(NOW - 3600, NOW)
        store.jobs.list_holders("ann")
        event.remove(engine, "before_cursor_execute", note)
        with store._database.reading() as connection:
            for statement, values in asked:
                plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)]
                for line in plan:
                    assert not re.match(r"SCAN (jobs|allocations)\b(?! USING INDEX uq_allocations_open_slot)", line), (
                        statement,
                        plan,
                    )
    assert len(asked) >= 8


def test_who_holds_slots(store: Store) -> None:
    make_people(store)
    lease, slots = make_pool(store, 140)
    store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    assert store.jobs.list_holders(None) == ()
    big = store.jobs.submit(make_job(name="big", max_workers=9), BEN, NOW).job
    hidden = store.jobs.submit(make_job(name="hidden", queue="closed"), BEN, NOW).job
    many = [store.jobs.submit(make_job(), ANN, NOW).job for _ in range(120)]
    start(store, lease.fence, big, tuple(slots[:9]))
    start(store, lease.fence, hidden, tuple(slots[9:11]))
    for slot, job in zip(slots[11:], many, strict=False):
        start(store, lease.fence, job, (slot,))
    held = store.jobs.list_holders("ann")
    assert held[0] == Holder(id=big.id, owner="ben", name="big", num_slots=9, is_visible=True)
    assert held[1] == Holder(id=hidden.id, owner="ben", name="hidden", num_slots=2, is_visible=False)
    assert [holder.id for holder in held[2:]] == [job.id for job in many]
    assert all(holder.is_visible for holder in store.jobs.list_holders(None))
    ended = store.jobs.get(many[0].id)
    write(store, lease.fence, ended, stage=Stage.SUCCEEDED, closed=(slots[11],), reason="done")
    assert many[0].id not in {holder.id for holder in store.jobs.list_holders("ann")}
    told = store.jobs.describe({hidden.id, many[0].id, "j-0000000000"}, "ann")
    assert told == {
        hidden.id: held[1],
        many[0].id: Holder(id=many[0].id, owner="ann", name="mnist", num_slots=0, is_visible=True),
    }
