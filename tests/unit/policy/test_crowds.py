"""Jobs that together want more slots than their nodes have are found, whatever else there is."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.policy.world import EAGER, make_job
from tests.unit.policy.worlds import for_any

from legato.policy.crowds import Flow
from legato.policy.free_slots import can_run
from legato.policy.kinds import divide
from legato.policy.policies import decide
from legato.policy.snapshot import OWNER_LABEL, Node, Slot, Snapshot

_USERS = ("ann", "ben", "cleo")


@st.composite
def _pools(draw: st.DrawFn) -> tuple[Snapshot, dict[str, int], dict[str, int]]:
    """Draw nodes with labels and owners, jobs with needs, what each job wants, and slots that are taken."""
    nodes, slots, taken = [], [], {}
    for index in range(draw(st.integers(1, 5))):
        name, number = f"n{index}", draw(st.integers(1, 4))
        labels = draw(st.sampled_from([{}, {}, {"disk": "ssd"}]))
        owner = draw(st.sampled_from(["", "", *_USERS]))
        nodes.append(Node(name=name, labels={**labels, OWNER_LABEL: owner} if owner else labels))
        slots += [Slot(id=f"{name}/{slot}", node=name) for slot in range(number)]
        taken[name] = draw(st.integers(0, number)) if draw(st.booleans()) else 0
    jobs, wanted = [], {}
    for index in range(draw(st.integers(1, 6))):
        job = make_job(
            f"{draw(st.sampled_from(_USERS))}/j{index}", 9, labels=draw(st.sampled_from([{}, {"disk": "ssd"}]))
        )
        refusing = draw(st.sets(st.sampled_from([node.name for node in nodes])))
        jobs.append(msgspec.structs.replace(job, refusals=dict.fromkeys(refusing, "no data")))
        wanted[job.id] = draw(st.integers(1, 6))
    return Snapshot(now=0.0, slots=tuple(slots), jobs=tuple(jobs), nodes=tuple(nodes)), wanted, taken


@for_any(_pools())
def test_a_crowd_is_found_if_and_only_if_not_all_fit(drawn: tuple[Snapshot, dict[str, int], dict[str, int]]) -> None:
    """By Hall's theorem all fit if no jobs together want more than the nodes have that at least one of them can use."""
    snapshot, wanted, taken = drawn
    room = Counter(slot.node for slot in snapshot.slots)
    room.subtract(taken)
    usable = {job.id: {node.name for node in snapshot.nodes if can_run(node.name, node, job)} for job in snapshot.jobs}

    def is_too_much(jobs: tuple[str, ...]) -> bool:
        nodes = set().union(*(usable[job] for job in jobs))
        return sum(wanted[job] for job in jobs) > sum(room[node] for node in nodes)

    (pool,) = divide(snapshot, EAGER)
    crowds = Flow(pool, wanted, taken).crowds
    seen = Counter(node for crowd in crowds for node in crowd.nodes)
    assert not seen or max(seen.values()) == 1
    for crowd in crowds:
        names = {claim.job.id for claim in crowd.claims}
        assert len(names) == len(crowd.claims) > 1
        assert set(crowd.nodes) == set().union(*(usable[name] for name in names))
        assert names == {name for name in wanted if usable[name] and usable[name] <= set(crowd.nodes)}
        assert crowd.room == sum(room[node] for node in crowd.nodes)
        assert crowd.wanted == sum(wanted[name] for name in names) > crowd.room
        assert [claim.order for claim in crowd.claims] == sorted(claim.order for claim in crowd.claims)
    one = {frozenset(jobs) for jobs in ((job,) for job in wanted) if is_too_much(jobs)}
    several = any(is_too_much(jobs) for number in range(2, len(wanted) + 1) for jobs in combinations(wanted, number))
    if not one:
        assert bool(crowds) == several


@pytest.mark.parametrize("seed", range(3, 10))
def test_all_targets_can_be_placed_in_a_pool_with_many_crowds(seed: int) -> None:
    """Each crowd leaves slots to jobs outside it, which are in the next one: nine divisions were not enough."""
    source = random.Random(seed)
    nodes = tuple(Node(name=f"n{i}", labels={OWNER_LABEL: f"u{i}"} if i % 2 else {}) for i in range(24))
    slots = tuple(Slot(id=f"{node.name}/{index}", node=node.name) for node in nodes for index in range(4))
    jobs = tuple(
        make_job(f"u{i % 24}/j{i}", source.choice([8, 16]), at=float(i), elastic=source.random() > 0.2)
        for i in range(72)
    )
    decisions = decide(Snapshot(now=1000.0, slots=slots, jobs=jobs, nodes=nodes), EAGER).decisions
    assert [len(each.slots) for each in decisions] == [each.wanted for each in decisions]
    assert sum(len(each.slots) for each in decisions) == len(slots)


def test_a_job_leaves_a_slot_for_another_that_needs_it() -> None:
    """early could have n0 or n1, late needs n0 and n2. early gets n0 first and leaves it for the only slot of n1."""
    nodes = [Node(name=f"n{index}") for index in range(3)]
    slots = [Slot(id=f"{node.name}/0", node=node.name) for node in nodes]
    early = make_job("ann/early", 1, refusals={"n2": "no data"})
    late = make_job("ann/late", 2, at=1.0, refusals={"n1": "no data"})
    snapshot = Snapshot(now=0.0, slots=tuple(slots), jobs=(early, late), nodes=tuple(nodes))
    (pool,) = divide(snapshot, EAGER)
    assert not Flow(pool, {"early": 1, "late": 2}, {}).crowds
    (crowd,) = Flow(pool, {"early": 2, "late": 2}, {}).crowds
    assert ([claim.job.id for claim in crowd.claims], crowd.nodes, crowd.room) == (
        ["early", "late"],
        ["n0", "n1", "n2"],
        3,
    )


def test_a_slot_is_left_once() -> None:
    """early leaves n0 for n1; it has nothing more to leave there, although n3 is free for it too."""
    nodes = [Node(name=f"n{index}") for index in range(5)]
    slots = [Slot(id=f"{node.name}/0", node=node.name) for node in nodes]
    early = make_job("ann/early", 1, refusals={"n2": "no data", "n4": "no data"})
    late = [
        make_job(f"ann/{name}", 2, at=1.0, refusals={"n1": "no data", "n3": "no data"}) for name in ("late", "later")
    ]
    snapshot = Snapshot(now=0.0, slots=tuple(slots), jobs=(early, *late), nodes=tuple(nodes))
    (pool,) = divide(snapshot, EAGER)
    (crowd,) = Flow(pool, {"early": 1, "late": 2, "later": 2}, {}).crowds
    assert ([claim.job.id for claim in crowd.claims], crowd.nodes, crowd.room) == (
        ["late", "later"],
        ["n0", "n2", "n4"],
        3,
    )


def test_two_jobs_do_not_move_to_one_slot() -> None:
    """left could leave n0, and right could leave n2, each for n3, which has one slot."""
    nodes = [Node(name=f"n{index}") for index in range(4)]
    slots = [Slot(id=f"{node.name}/0", node=node.name) for node in nodes]
    left = make_job("ann/left", 1, refusals={"n1": "no data", "n2": "no data"})
    right = make_job("ann/right", 1, refusals={"n0": "no data", "n1": "no data"})
    wide = make_job("ann/wide", 3, at=1.0, refusals={"n3": "no data"})
    snapshot = Snapshot(now=0.0, slots=tuple(slots), jobs=(left, right, wide), nodes=tuple(nodes))
    (pool,) = divide(snapshot, EAGER)
    assert not Flow(pool, {"left": 1, "right": 1, "wide": 2}, {}).crowds
    (crowd,) = Flow(pool, {"left": 1, "right": 1, "wide": 3}, {}).crowds
    assert ([claim.job.id for claim in crowd.claims], crowd.room) == (["left", "right", "wide"], 4)
