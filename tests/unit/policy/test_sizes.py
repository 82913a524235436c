"""Useful sizes: where the number of rounds drops."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.policy.world import make_job, make_speed
from tests.unit.policy.worlds import any_speeds, for_any

from legato.policy.sizes import fit_size, largest_size, next_size, smallest_size
from legato.policy.snapshot import JobDemand
from legato.policy.speeds import Slowdown, find_slowdown


@st.composite
def jobs(draw: st.DrawFn) -> JobDemand:
    low = draw(st.integers(1, 12))
    return make_job(
        "a/j",
        low + draw(st.integers(0, 20)),
        min_workers=low,
        elastic=draw(st.booleans()),
        num_micro_batches=draw(st.none() | st.integers(1, 40)),
        shares_freely=draw(st.booleans()),
        speeds=draw(any_speeds()),
    )


def sizes(job: JobDemand) -> list[int]:
    """By the definition."""
    total = job.num_micro_batches
    most = job.max_workers if total is None else min(job.max_workers, total)
    if not job.elastic:
        return [most]
    least = min(job.min_workers, most)

    def helps(number: int) -> bool:
        if total is None or job.shares_freely or number == 1:
            return True
        return -(-total // number) < -(-total // (number - 1))

    def slows(number: int) -> bool:
        return job.slowdown is not None and number > job.slowdown.most

    return [n for n in range(least, most + 1) if n == least or (helps(n) and not slows(n))]


@for_any(jobs(), st.integers(0, 40))
def test_sizes_are_those_of_the_definition(job: JobDemand, number: int) -> None:
    want = sizes(job)
    assert smallest_size(job) == want[0]
    assert largest_size(job) == want[-1]
    assert fit_size(job, number) == max((size for size in want if size <= number), default=0)


@for_any(jobs())
def test_the_next_size_is_the_one_after(job: JobDemand) -> None:
    want = sizes(job)
    assert [next_size(job, size) for size in want] == [*want[1:], None]
    assert next_size(job, 0) == want[0]


def test_four_micro_batches_are_no_faster_on_three_workers() -> None:
    assert fit_size(make_job("a/j", 4, num_micro_batches=4), 3) == 2


def test_a_size_that_was_slower_is_not_used_and_one_that_was_as_fast_is() -> None:
    job = make_job("a/j", 8, speeds=(make_speed(2, 10.0), make_speed(4, 12.0), make_speed(6, 11.0)))
    assert largest_size(job) == 5
    assert next_size(job, 5) is None
    assert fit_size(job, 8) == 5
    assert fit_size(job, 8, knows_speed=False) == 8
    almost = make_job("a/j", 8, speeds=(make_speed(4, 12.0), make_speed(6, 11.5)))
    assert largest_size(almost) == 8


def test_the_minimum_stays_a_size_however_slow_it_was() -> None:
    job = make_job("a/j", 8, min_workers=4, speeds=(make_speed(4, 12.0), make_speed(5, 6.0)))
    assert (smallest_size(job), largest_size(job)) == (4, 4)
    below = make_job("a/j", 8, min_workers=4, speeds=(make_speed(2, 12.0), make_speed(4, 6.0)))
    assert largest_size(below) == 8, "that two were faster does not matter"


@pytest.mark.parametrize(
    ("found", "want"),
    [
        ([(1, 10.0, 0), (2, 9.0, 0), (8, 40.0, 0)], None),  # far more are faster
        ([(2, 10.0, 0), (64, 5.0, 0)], (2, 64, 33)),
        ([(2, 10.0, 0), (33, 6.0, 0), (64, 5.0, 0)], (2, 33, 17)),
        ([(2, 10.0, 9e9), (3, 9.0, 0)], (2, 3, 2)),  # the best one does not age
        ([(2, 10.0, 0), (3, 9.0, 1800), (5, 8.0, 1700)], (2, 5, 3)),  # 3 is tried again, and not more
        ([(2, 10.0, 0), (3, 9.0, 1800), (5, 8.0, 3600)], (2, 5, 3)),
        ([(2, 10.0, 0), (3, 9.0, 1800)], None),
        ([(2, 10.0, 0), (3, 9.0, 10), (5, 8.0, 3600)], (2, 3, 2)),
    ],
)
def test_the_right_number_is_found_in_few_steps(
    found: list[tuple[int, float, float]], want: tuple[int, int, int] | None
) -> None:
    speeds = [msgspec.structs.replace(make_speed(number, speed), at=1e10 - age) for number, speed, age in found]
    slowdown = find_slowdown(speeds, 1, 1e10)
    assert slowdown == (None if want is None else Slowdown(*want))


def test_the_faster_placement_of_a_number_of_workers_counts() -> None:
    job = make_job("a/j", 8, speeds=(make_speed(2, 10.0), make_speed(4, 5.0, num_nodes=2), make_speed(4, 15.0)))
    assert largest_size(job) == 8
