"""Machines of single users in decisions: who shares which slots, and what reasons say."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.unit.policy.world import EAGER, make_job, make_snapshot

from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy
from legato.policy.snapshot import OWNER_LABEL, JobDemand, Node, Queue, Slot, Snapshot


@pytest.mark.parametrize("order", [("ann", "ben", "carl"), ("carl", "ben", "ann")])
def test_users_without_machines_share_those_of_all_equally(order: tuple[str, ...]) -> None:
    jobs = [make_job(f"{owner}/{owner}", 8, at=float(index)) for index, owner in enumerate(order)]
    pool = make_snapshot(8, jobs)
    pool = msgspec.structs.replace(pool, nodes=(Node(name="n0"), Node(name="n1", labels={OWNER_LABEL: "carl"})))
    decided = {one.job: one for one in decide(pool, EAGER).decisions}
    assert {name: len(one.slots) for name, one in decided.items()} == {"ann": 2, "ben": 2, "carl": 4}
    assert {slot.split("/")[0] for name in ("ann", "ben") for slot in decided[name].slots} == {"n0"}
    assert "4 slots for machines that belong to no user, with ann/ann" in decided["ben"].reason, decided["ben"].reason


def test_a_machine_of_the_only_user_changes_no_number_and_no_reason() -> None:
    pool = make_snapshot(8, [make_job("ann/a", 8), make_job("ann/b", 8, at=1.0)])
    owned = msgspec.structs.replace(pool, nodes=(Node(name="n0"), Node(name="n1", labels={OWNER_LABEL: "ann"})))
    before, after = ([(one.wanted, one.reason) for one in decide(each, EAGER).decisions] for each in (pool, owned))
    assert before == after


def test_a_job_uses_machines_of_its_owner_first() -> None:
    pool = make_snapshot(8, [make_job("ann/a", 3)])
    for owned in ("n0", "n1"):
        nodes = (*(Node(name=name) for name in {"n0", "n1"} - {owned}), Node(name=owned, labels={OWNER_LABEL: "ann"}))
        (decision,) = decide(msgspec.structs.replace(pool, nodes=nodes), EAGER).decisions
        assert {slot.split("/")[0] for slot in decision.slots} == {owned}


def owned_pool(jobs: list[JobDemand], sizes: tuple[int, ...] = (), **owners: str) -> Snapshot:
    """Return a pool of nodes whose owners are these; "": all users. ``sizes``: their slots; otherwise 4 each."""
    nodes = tuple(Node(name=name, labels={OWNER_LABEL: owner} if owner else {}) for name, owner in owners.items())
    slots = tuple(
        Slot(id=f"{node.name}/g{place}", node=node.name, device="GPU")
        for node, size in zip(nodes, sizes or [4] * len(nodes), strict=True)
        for place in range(size)
    )
    return Snapshot(now=100.0, slots=slots, jobs=tuple(jobs), nodes=nodes)


def test_owners_share_their_own_machines_alone_if_the_common_share_would_be_less() -> None:
    jobs = [
        make_job(f"{owner}/{owner}", 8, at=float(index)) for index, owner in enumerate(("ann", "ben", "carl", "dan"))
    ]
    pool = owned_pool(jobs, n0="", n1="carl", n2="carl", n3="dan")
    decided = {one.job: one for one in decide(pool, EAGER).decisions}
    # Of 16 slots, an equal share is 4. Carl's own machines have more, so the other three share the 8 others.
    assert {name: len(one.slots) for name, one in decided.items()} == {"ann": 2, "ben": 2, "carl": 8, "dan": 4}
    assert decided["carl"].reason.endswith(": its maximum")
    assert "4 slots for machines that belong to no user, with ann/ann" in decided["ben"].reason, decided["ben"].reason
    assert "4 slots for machines that belong to user dan" in decided["dan"].reason, decided["dan"].reason


def test_owners_with_few_machines_share_the_common_ones_with_others() -> None:
    jobs = [
        make_job(f"{owner}/{owner}", 8, at=float(index)) for index, owner in enumerate(("ann", "ben", "carl", "dan"))
    ]
    pool = owned_pool(jobs, n0="", n1="", n2="", n3="carl", n4="dan")
    decided = {one.job: one for one in decide(pool, EAGER).decisions}
    assert {name: len(one.slots) for name, one in decided.items()} == {"ann": 5, "ben": 5, "carl": 5, "dan": 5}
    slots = {name: {slot.split("/")[0] for slot in one.slots} for name, one in decided.items()}
    assert "n3" in slots["carl"] and "n4" in slots["dan"]


def test_a_minimum_above_the_own_machines_of_an_owner_gets_those_and_common_ones() -> None:
    # The machine of zed, who has no job, must change nothing.
    jobs = [make_job("ann/a", 6, elastic=False), make_job("ben/b", 8, at=1.0), make_job("carl/c", 8, at=2.0)]
    decided = {one.job: len(one.slots) for one in decide(owned_pool(jobs, n0="", n1="ann", n2="zed"), EAGER).decisions}
    assert decided["a"] == 6 and decided["b"] + decided["c"] == 2


def test_no_suitable_slots_are_idle_beside_an_owner_whose_minimum_does_not_fit() -> None:
    jobs = [
        make_job("dan/d", 1),
        make_job("ben/b", 4, elastic=False, at=1.0),
        make_job("cleo/c", 6, elastic=False, at=2.0),
    ]
    decided = {one.job: len(one.slots) for one in decide(owned_pool(jobs, n0="", n1="cleo", n2="ann"), EAGER).decisions}
    assert decided == {"d": 1, "b": 0, "c": 6}


def test_slots_of_a_refused_minimum_go_to_a_guest_whose_share_was_limited_for_it() -> None:
    jobs = [
        make_job("ben/a", 2, elastic=False),
        make_job("carl/b", 6, min_workers=5, at=1.0),
        make_job("ben/c", 7, at=2.0),
        make_job("ben/d", 3, min_workers=3, at=3.0),
    ]
    decided = decide(owned_pool(jobs, (6, 4), n0="", n1="carl"), EAGER).decisions
    # Of the machines for all, the share of d is 3 of 6 slots. It does not fit beside the minimum of b.
    assert {one.job: len(one.slots) for one in decided} == {"a": 2, "b": 6, "c": 2, "d": 0}


def test_a_job_that_waits_gets_the_share_of_another_that_is_refused() -> None:
    jobs = [
        make_job("carl/a", 3, elastic=False, priority=9000),
        make_job("dan/b", 6, elastic=False, priority=9000, at=1.0),
        make_job("ann/c", 1, priority=9000, at=2.0),
    ]
    pool = owned_pool(jobs, (3, 1, 3), n0="", n1="carl", n2="dan")
    rules = msgspec.structs.replace(EAGER, policy=Policy.PRIORITY)
    assert {one.job: len(one.slots) for one in decide(pool, rules).decisions} == {"a": 3, "b": 0, "c": 1}


def test_no_target_is_larger_than_what_a_job_can_use() -> None:
    jobs = [
        make_job("ann/a", 8, min_workers=5, priority=9000),
        make_job("dan/b", 11, elastic=False, num_micro_batches=4, at=1.0),
        make_job("carl/c", 8, min_workers=2, gpus_per_worker=2, at=2.0),
    ]
    decided = decide(owned_pool(jobs, (6, 1, 5), n0="", n1="carl", n2="dan"), EAGER)
    assert decided.of("a").wanted == len(decided.of("a").slots) == 6, decided.of("a")


def test_no_limit_is_raised_to_slots_that_cannot_be_placed() -> None:
    """e has a share of n2 and n3 but no minimum. If c got more of it, a, which needs 7 of 9 slots, could not run."""
    jobs = [
        make_job("ben/a", 7, elastic=False, priority=9000),
        make_job("ann/b", 4, priority=9000, at=1.0),
        make_job("carl/c", 2, gpus_per_worker=2, at=2.0),
        make_job("ben/d", priority=9000, at=3.0, refusals={"n2": "no data", "n3": "no data"}),
        make_job("ann/e", 4, min_workers=3, gpus_per_worker=2, at=4.0),
    ]
    pool = owned_pool(jobs, (4, 1, 5, 4), n0="dan", n1="carl", n2="", n3="")
    rules = msgspec.structs.replace(EAGER, policy=Policy.PRIORITY, fair_by=FairBy.JOB)
    decided = {one.job: len(one.slots) for one in decide(pool, rules).decisions}
    assert decided == {"a": 7, "b": 0, "c": 2, "d": 0, "e": 0}


def test_a_limit_is_raised_only_by_what_a_minimum_without_a_share_leaves() -> None:
    """b needs 4 of the 5 slots of n2 and n3. Of the 2 of n3, c may use the other one, and not both."""
    jobs = [
        make_job("ben/a", 1, gpus_per_worker=2, refusals={"n2": "no data"}),
        make_job("ann/b", 4, elastic=False, priority=9000, at=1.0),
        make_job("ben/c", 4, at=2.0, refusals={"n2": "no data"}),
    ]
    pool = owned_pool(jobs, (5, 1, 3, 2), n0="carl", n1="dan", n2="", n3="")
    rules = msgspec.structs.replace(EAGER, policy=Policy.PRIORITY, fair_by=FairBy.JOB)
    assert {one.job: len(one.slots) for one in decide(pool, rules).decisions} == {"a": 0, "b": 4, "c": 1}


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("fair_by", list(FairBy))
def test_all_slots_of_a_pool_with_machines_of_many_users_are_used(policy: Policy, fair_by: FairBy) -> None:
    """Every owner could use all machines for all, so each room alone says nothing of what they may have together."""
    owners = [f"u{index}" for index in range(24)]
    jobs = [
        make_job(f"{user}/{user}{index}", 12, at=float(place), min_workers=1 + index, queue="ab"[place % 2])
        for index in range(2)
        for place, user in enumerate([*owners, "guest", "other"])
    ]
    sizes = (*(3 + index % 4 for index in range(24)), 20, 20)
    pool = owned_pool(jobs, sizes, **{f"n{index}": owner for index, owner in enumerate([*owners, "", ""])})
    pool = msgspec.structs.replace(pool, queues=(Queue(name="a", weight=2.0, floor=6), Queue(name="b")))
    decided = decide(pool, msgspec.structs.replace(EAGER, policy=policy, fair_by=fair_by)).decisions
    assert all(len(one.slots) == one.wanted for one in decided)
    assert sum(one.wanted for one in decided) == len(pool.slots)


def test_all_targets_can_be_placed_though_many_could_not_at_first() -> None:
    source = random.Random(0)
    users = [f"u{index:02}" for index in range(12)]
    jobs = [
        make_job(
            f"{source.choice(users)}/j{index}",
            source.choice([4, 8, 16, 32]),
            at=source.random(),
            elastic=source.random() < 0.2,
            queue=f"q{source.randrange(4)}",
            gpus_per_worker=source.choice([1, 2, 4]),
        )
        for index in range(80)
    ]
    owners = {f"n{index:02}": "" if index % 2 else users[index // 2 % 6] for index in range(40)}
    queues = tuple(Queue(name=f"q{index}", ceiling=100 if index % 2 else None) for index in range(4))
    pool = msgspec.structs.replace(owned_pool(jobs, (20,) * 40, **owners), queues=queues)
    decided = decide(pool, EAGER).decisions
    assert all(len(one.slots) == one.wanted for one in decided)
    assert sum(len(one.slots) for one in decided) > 0.95 * len(pool.slots)


@pytest.mark.parametrize("policy", list(Policy))
def test_no_reason_names_a_job_of_another_user_if_no_machine_is_for_all(policy: Policy) -> None:
    jobs = [
        make_job("ann/a", 2, elastic=False, at=2.0, queue="y"),
        make_job("ann/b", 5, elastic=False, at=3.0, queue="y"),
        make_job("ben/c", 2, min_workers=2, at=1.0, priority=9000, queue="x"),
        make_job("ben/d", 6, min_workers=5, queue="y"),
    ]
    queues = (Queue(name="x", ceiling=3), Queue(name="y", ceiling=5, floor=5))
    pool = msgspec.structs.replace(owned_pool(jobs, (5, 5), n0="ann", n1="ben"), queues=queues)
    owners = {job.id: job.owner for job in jobs}
    for one in decide(pool, msgspec.structs.replace(EAGER, policy=policy)).decisions:
        if "machines that belong to no other user" in one.reason:
            assert {owners[job] for job in one.because} <= {owners[one.job]}, one
