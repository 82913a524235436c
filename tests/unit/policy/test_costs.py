"""The calls of a decision on many jobs: counted, not timed, so that other work on a machine fails no test."""

from __future__ import annotations

from tests.unit.policy.test_kinds import count_calls
from tests.unit.policy.world import make_job, make_slots

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
