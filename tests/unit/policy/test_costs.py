"""The calls of a decision on many jobs: counted, not timed, so that other work on a machine fails no test."""

from __future__ import annotations

import random
import sys
from types import FrameType

from tests.unit.policy.test_kinds import count_calls
from tests.unit.policy.world import EAGER, make_job, make_slots

from legato.policy.policies import decide
from legato.policy.snapshot import OWNER_LABEL, Node, Snapshot


def test_the_calls_grow_as_the_number_of_jobs_that_share_by_priority() -> None:
    def count_with(number: int) -> int:
        jobs = tuple(make_job(f"ann/j{index}", 8, at=float(index), priority=5000 + index) for index in range(number))
        return count_calls(Snapshot(now=1e4, slots=make_slots(2 * number), jobs=jobs))

    assert count_with(200) < 5 * count_with(50)


def test_a_job_that_is_the_only_one_of_its_user_takes_few_calls() -> None:
    number = 200
    jobs = tuple(make_job(f"user{index}/j{index}", 8, at=float(index)) for index in range(number))
    assert count_calls(Snapshot(now=1e4, slots=make_slots(2 * number), jobs=jobs)) < 200 * number


def test_the_calls_do_not_grow_with_the_number_of_users_who_have_machines() -> None:
    """Half of the machines belong to users. The same jobs and slots, so only the users differ."""
    number = 300

    def count_with(num_owners: int) -> int:
        jobs = tuple(make_job(f"user{index % 60}/j{index}", 8, at=float(index)) for index in range(number))
        slots = make_slots(4 * number)
        names = dict.fromkeys(slot.node for slot in slots)
        nodes = tuple(
            Node(name=name, labels={OWNER_LABEL: f"user{index % num_owners}"} if index % 2 else {})
            for index, name in enumerate(names)
        )
        return count_calls(Snapshot(now=1e4, slots=slots, jobs=jobs, nodes=nodes))

    assert count_with(60) < 2 * count_with(2)


def test_jobs_that_almost_all_nodes_have_refused_take_few_steps() -> None:
    """Each job can use three nodes, and no two jobs the same three."""
    source, num_nodes, num_jobs = random.Random(0), 150, 600
    nodes = [f"n{index}" for index in range(num_nodes)]
    jobs = []
    for index in range(num_jobs):
        usable = source.sample(nodes, 3)
        refusals = {node: "no data" for node in nodes if node not in usable}
        jobs.append(make_job(f"ann/j{index}", 4, at=float(index), refusals=refusals))
    snapshot = Snapshot(now=1e4, slots=make_slots(4 * num_nodes), jobs=tuple(jobs))
    assert _count_lines(snapshot) < 60 * num_nodes * num_jobs


def _count_lines(snapshot: Snapshot) -> int:
    """Return how many lines of code a decision runs: unlike the calls, these include what loops do."""
    number = 0

    def note(_frame: FrameType, event: str, _arg: object) -> object:
        nonlocal number
        number += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        decide(snapshot, EAGER)
    finally:
        sys.settrace(before)
    return number
