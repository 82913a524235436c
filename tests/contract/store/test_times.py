"""How long jobs have held slots, over all their attempts."""

from __future__ import annotations

from tests.contract.store.making import ANN, NOW, make_job, make_people, make_pool, start, write

from legato.control.stages import Stage
from legato.control.store import Store


def test_attempts_count_and_what_lies_between_does_not(store: Store) -> None:
    make_people(store)
    lease, slots = make_pool(store, 1)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    assert store.loop.read_held_s(job.id, NOW + 5) == 0.0
    job = start(store, lease.fence, job, (slots[0],), NOW + 10)
    assert store.loop.read_held_s(job.id, NOW + 15) == 5.0
    assert store.loop.read_held_s(job.id, NOW) == 0.0, "a clock that was set back"
    job = write(store, lease.fence, job, NOW + 30, stage=Stage.QUEUED, closed=(slots[0],), reason="paused")
    assert store.loop.read_held_s(job.id, NOW + 10_000) == 20.0
    start(store, lease.fence, job, (slots[0],), NOW + 10_000)
    assert store.loop.read_held_s(job.id, NOW + 10_007) == 27.0
