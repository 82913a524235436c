"""Exact shares and their whole numbers, without jobs and queues."""

from __future__ import annotations

import math

import pytest
from hypothesis import strategies as st
from tests.unit.policy.worlds import for_any

from legato.policy.share import Bounds, Part, make_whole, share_out

WEIGHTS = st.sampled_from([0.5, 1, 1, 2, 3, 2500, 5000, 9999])


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    lo = draw(st.integers(0, 6))
    return Bounds(draw(WEIGHTS), lo, lo + draw(st.integers(0, 30)))


@st.composite
def problems(draw: st.DrawFn) -> tuple[int, list[Bounds]]:
    claims = draw(st.lists(bounds(), min_size=1, max_size=12))
    return sum(claim.lo for claim in claims) + draw(st.integers(0, 120)), claims


def by_bisection(capacity: float, claims: list[Bounds]) -> list[float]:
    def at(level: float) -> list[float]:
        return [min(max(level * claim.weight, claim.lo), claim.hi) for claim in claims]

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(at(middle)) < capacity else (low, middle)
    return at(high)


@pytest.mark.parametrize(
    ("capacity", "claims", "want"),
    [
        (4, [(1, 0, 4), (1, 0, 4)], [2, 2]),
        (300, [(1, 0, 300), (1, 0, 300)], [150, 150]),
        (150, [(1, 0, 150), (1, 0, 150), (3, 0, 150)], [30, 30, 90]),
        (10, [(1, 4, 10), (1, 0, 10), (2, 0, 10)], [4, 2, 4]),
        # A share by demand would give 2 and 6.
        (8, [(1, 0, 10), (1, 0, 30)], [4, 4]),
        (100, [(1, 0, 3), (1, 0, 5)], [3, 5]),
        (5, [(1, 2, 3), (1, 3, 9)], [2, 3]),
        (7, [(1, 0, 0), (5, 0, 9)], [0, 7]),
    ],
)
def test_known_answers(capacity: int, claims: list[tuple[float, int, int]], want: list[float]) -> None:
    assert share_out(capacity, [Bounds(*claim) for claim in claims]) == want


def test_no_claims_share_nothing() -> None:
    assert share_out(4, []) == []


@for_any(problems())
def test_one_sweep_finds_what_bisection_finds(problem: tuple[int, list[Bounds]]) -> None:
    capacity, claims = problem
    assert share_out(capacity, claims) == pytest.approx(by_bisection(capacity, claims), abs=1e-6)


@for_any(problems())
def test_shares_keep_their_bounds_and_use_all_there_is(problem: tuple[int, list[Bounds]]) -> None:
    capacity, claims = problem
    shares = share_out(capacity, claims)
    assert all(claim.lo <= share <= claim.hi for claim, share in zip(claims, shares, strict=True))
    assert sum(shares) == pytest.approx(min(capacity, sum(claim.hi for claim in claims)))


@for_any(problems(), bounds())
def test_one_more_claim_raises_no_other(problem: tuple[int, list[Bounds]], more: Bounds) -> None:
    capacity, claims = problem
    before = share_out(capacity + more.lo, claims)
    after = share_out(capacity + more.lo, [*claims, more])
    assert all(new <= old + 1e-9 for new, old in zip(after, before, strict=False))


@for_any(problems())
def test_no_job_is_a_whole_slot_away_from_the_exact_share(problem: tuple[int, list[Bounds]]) -> None:
    capacity, claims = problem
    shares = share_out(capacity, claims)
    parts = [
        Part(share, claim.weight, 0, (index,)) for index, (share, claim) in enumerate(zip(shares, claims, strict=True))
    ]
    total = min(capacity, sum(claim.hi for claim in claims))
    sizes = make_whole(total, parts)
    assert sum(sizes) == total
    for size, share, claim in zip(sizes, shares, claims, strict=True):
        assert abs(size - share) < 1
        assert size <= math.ceil(share)
        assert claim.lo <= size <= claim.hi


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        # The smallest (a + 1/2) / w: here 0.5 / 1 against 1.5 / 2.
        ([Part(0.75, 1, 0, ("a",)), Part(1.25, 2, 0, ("b",))], [1, 1]),
        # Equal: who holds the second slot keeps it.
        ([Part(1.5, 1, 1, ("a",)), Part(1.5, 1, 2, ("b",))], [1, 2]),
        # No job, or all jobs, hold it: who came first.
        ([Part(1.5, 1, 1, (2.0, "a")), Part(1.5, 1, 1, (1.0, "b"))], [1, 2]),
        ([Part(1.5, 1, 2, (1.0, "a")), Part(1.5, 1, 2, (1.0, "b"))], [2, 1]),
    ],
)
def test_ties(parts: list[Part], want: list[int]) -> None:
    assert make_whole(round(sum(part.share for part in parts)), parts) == want
