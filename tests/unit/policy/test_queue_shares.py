"""What each queue's part of the pool is."""

from __future__ import annotations

import pytest
from tests.unit.policy.world import make_job, make_snapshot
from tests.unit.policy.worlds import any_rules, any_snapshots, for_any

from legato.policy.queue_shares import share_queues
from legato.policy.rules import Policy, Rules
from legato.policy.snapshot import Queue, Snapshot


def fair(num_slots: int, *queues: Queue) -> dict[str, float | None]:
    return {one.queue: one.fair for one in share_queues(make_snapshot(num_slots, [], queues), Rules())}


def test_queues_get_slots_in_proportion_to_weights() -> None:
    assert fair(6, Queue(name="a"), Queue(name="b", weight=2)) == {"a": 2.0, "b": 4.0}
    assert fair(5, Queue(name="a"), Queue(name="b")) == {"a": 2.5, "b": 2.5}
    assert fair(4, Queue(name="a")) == {"a": 4.0}
    assert fair(0, Queue(name="a"), Queue(name="b", floor=1)) == {"a": 0.0, "b": 0.0}


def test_between_floor_and_ceiling() -> None:
    assert fair(8, Queue(name="a", floor=6), Queue(name="b")) == {"a": 6.0, "b": 2.0}
    assert fair(8, Queue(name="a", ceiling=1), Queue(name="b")) == {"a": 1.0, "b": 7.0}
    assert fair(2, Queue(name="a", ceiling=9), Queue(name="b", ceiling=9)) == {"a": 1.0, "b": 1.0}


def test_floors_that_do_not_fit_share_what_there_is() -> None:
    found = fair(4, Queue(name="a", floor=6), Queue(name="b", floor=2), Queue(name="c"))
    assert found == {"a": 3.0, "b": 1.0, "c": 0.0}


def test_what_its_jobs_could_use() -> None:
    jobs = [
        make_job("anna/a", 3, queue="a"),
        make_job("anna/b", 9, queue="a"),
        make_job("bob/c", 2, queue="only-named"),
    ]
    found = share_queues(make_snapshot(4, jobs, [Queue(name="a"), Queue(name="empty")]), Rules())
    assert [(one.queue, one.wanted) for one in found] == [("a", 12), ("empty", 0), ("only-named", 2)]


@pytest.mark.parametrize("policy", [Policy.PRIORITY, Policy.FIFO])
def test_policies_that_know_no_weights(policy: Policy) -> None:
    found = share_queues(make_snapshot(4, [], [Queue(name="a")]), Rules(policy=policy))
    assert [one.fair for one in found] == [None]


@for_any(any_snapshots(), any_rules())
def test_parts_add_up_to_the_pool_and_keep_their_bounds(snapshot: Snapshot, rules: Rules) -> None:
    found = share_queues(snapshot, rules)
    queues = {queue.name: queue for queue in snapshot.queues}
    capacity = sum(slot.usable for slot in snapshot.slots)
    for one in found:
        queue = queues.get(one.queue, Queue(name=one.queue))
        if one.fair is not None:
            assert 0 <= one.fair <= min(capacity, capacity if queue.ceiling is None else queue.ceiling) + 1e-6
    if found and rules.policy == Policy.FAIR:
        most = sum(
            min(capacity, queues[one.queue].ceiling or capacity) if one.queue in queues else capacity for one in found
        )
        assert sum(one.fair or 0.0 for one in found) == pytest.approx(min(capacity, most))
