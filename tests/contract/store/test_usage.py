"""What users have used: complete over restarts and takeovers, by hour, and decayed."""

from __future__ import annotations

import math

import pytest
from tests.contract.store.making import ANN, BEN, NOW, make_job, make_people, make_pool, start, write

from legato.control.store import KEPT_S, Store, Used
from legato.core.errors import FencedOut

HOUR_S = 3600.0


@pytest.fixture
def fence(store: Store) -> int:
    """Ann has two slots and Ben one, since `NOW`; counted from `NOW` on."""
    make_people(store)
    lease, (first, second, third) = make_pool(store, 3)
    store.loop.count_usage(lease.fence, NOW)
    start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (first, second))
    start(store, lease.fence, store.jobs.submit(make_job(), BEN, NOW).job, (third,))
    return lease.fence


def used(store: Store, since: float = NOW, sees_only: str | None = None) -> dict[str, float]:
    return {one.user: pytest.approx(one.slot_s) for one in store.usage.read(since, sees_only)}


def test_open_and_ended_allocations_count_up_to_now_and_once(store: Store, fence: int) -> None:
    store.loop.count_usage(fence, NOW + 60)
    assert used(store) == {"ann": 120.0, "ben": 60.0}
    store.loop.count_usage(fence, NOW + 60)
    assert used(store) == {"ann": 120.0, "ben": 60.0}
    job = next(job for job in store.loop.read_facts().jobs if job.owner == "ann")
    write(store, fence, job, NOW + 70, closed=("node/cpu:0",), reason="its worker has ended")
    store.loop.count_usage(fence, NOW + 100)
    assert used(store) == {"ann": 120.0 + 10 + 40, "ben": 100.0}
    assert used(store, sees_only="ben") == {"ben": 100.0}


def test_the_time_without_a_server_counts_when_another_one_takes_over(store: Store, fence: int) -> None:
    store.loop.count_usage(fence, NOW + 60)
    store.loop.end_lease(NOW + 60)
    lease = store.loop.take_lease("another", NOW + 5 * HOUR_S, 10)
    assert lease is not None
    with pytest.raises(FencedOut):
        store.loop.count_usage(fence, NOW + 5 * HOUR_S)
    store.loop.count_usage(lease.fence, NOW + 5 * HOUR_S)
    assert used(store) == {"ann": 10 * HOUR_S, "ben": 5 * HOUR_S}
    # Only the part of the window counts.
    assert used(store, since=NOW + 4.5 * HOUR_S) == {"ann": HOUR_S, "ben": 0.5 * HOUR_S}


def test_a_clock_that_was_set_back_does_not_stop_the_count(store: Store, fence: int) -> None:
    store.loop.count_usage(fence, NOW + 2 * HOUR_S)
    store.loop.count_usage(fence, NOW + HOUR_S)
    store.loop.count_usage(fence, NOW + HOUR_S + 10)
    assert used(store) == {"ann": 4 * HOUR_S + 20, "ben": 2 * HOUR_S + 10}


def test_recent_use_is_an_average_that_decays(store: Store, fence: int) -> None:
    half_life_s = 32 * HOUR_S
    store.loop.count_usage(fence, NOW + half_life_s)
    recent = {one.user: one.num_slots for one in store.loop.read_recent_use(NOW + half_life_s, half_life_s)}
    # For one half-life it had two slots, and none before.
    assert recent == {"ann": pytest.approx(1.0, rel=0.03), "ben": pytest.approx(0.5, rel=0.03)}
    later = {one.user: one.num_slots for one in store.loop.read_recent_use(NOW + 3 * half_life_s, half_life_s)}
    assert later == {"ann": pytest.approx(0.25, rel=0.03), "ben": pytest.approx(0.125, rel=0.03)}


def test_constant_use_averages_to_what_is_held(store: Store, fence: int) -> None:
    half_life_s = 2 * HOUR_S
    for _, hours in enumerate(range(0, 40, 8)):
        store.loop.count_usage(fence, NOW + hours * HOUR_S)
    (ann, ben) = store.loop.read_recent_use(NOW + 32 * HOUR_S, half_life_s)
    assert math.isclose(ann.num_slots, 2.0, rel_tol=0.05)
    assert math.isclose(ben.num_slots, 1.0, rel_tol=0.05)


def test_old_use_is_deleted_and_use_of_deleted_jobs_stays(store: Store, fence: int) -> None:
    store.loop.count_usage(fence, NOW + 60)
    for job in store.loop.read_facts().jobs:
        slots = tuple(one.slot for one in store.jobs.read_allocations(job.id))
        write(store, fence, job, NOW + 60, stage="failed", closed=slots, reason="the driver ended")
    gone = store.retention.purge(fence, NOW + 90, jobs_before=NOW + 80, uploads_before=None, keys_before=0.0)
    assert len(gone.jobs) == 2
    assert used(store) == {"ann": 120.0, "ben": 60.0}
    store.loop.count_usage(fence, NOW + 60 + KEPT_S - HOUR_S)
    assert store.usage.read(0.0) == (Used("default", "ann", pytest.approx(120.0)), Used("default", "ben", 60.0))
    store.loop.count_usage(fence, NOW + 60 + KEPT_S + 2 * HOUR_S)
    assert store.usage.read(0.0) == ()


def test_the_use_of_a_job_counts_all_its_slots_until_it_ends(store: Store, fence: int) -> None:
    names = {job.id: job.owner for job in store.loop.read_facts().jobs}
    used = {names[job]: seconds for job, seconds in store.loop.read_used_slot_s(NOW + 100).items()}
    assert used == {"ann": 200.0, "ben": 100.0}
    # A clock that was set back takes nothing away.
    assert set(store.loop.read_used_slot_s(NOW - 100).values()) == {0.0}
