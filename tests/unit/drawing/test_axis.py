"""Marks of the axis are round, in order, inside, and never too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from legato.drawing.axis import choose_ticks


@given(st.floats(0, 2e9), st.floats(1e-3, 1e9), st.integers(1, 12))
def test_ticks(begin: float, length: float, most: int) -> None:
    end = begin + length
    ticks = choose_ticks(begin, end, most)
    assert len(ticks) <= most + 1
    assert ticks == sorted(set(ticks))
    near = length * 1e-6 + begin * 1e-14
    assert all(begin - near <= tick <= end + near for tick in ticks)
