"""Useful sizes: where the number of rounds drops."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.unit.policy.world import make_job
from tests.unit.policy.worlds import for_any

from legato.policy.sizes import fit_size, largest_size, next_size, smallest_size
from legato.policy.snapshot import JobDemand


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

    return [n for n in range(least, most + 1) if n == least or helps(n)]


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
