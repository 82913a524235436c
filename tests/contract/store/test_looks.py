"""What the platform looks like in numbers: jobs by stage, what is in each queue, and which jobs somebody may see."""

from __future__ import annotations

import pytest
from tests.contract.store.making import ADMIN, ANN, BEN, NOW, make_job, make_people, make_pool, start, write

from legato.control import store_jobs
from legato.control.records import Queue, QueueLoad
from legato.control.stages import Stage
from legato.control.store import Store


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
    monkeypatch.setattr(store_jobs, "_BATCH", 2)
    make_people(store)
    made = {store.jobs.submit(make_job(), ANN, NOW).job.id for _ in range(5)}
    assert store.jobs.which_visible(made, "ann") == made
