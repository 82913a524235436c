"""A share of the slow tests has each of them once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import leave_out, read_share


@given(st.integers(0, 40), st.integers(1, 7))
def test_each_test_is_in_one_share_and_the_shares_are_equal(num_tests: int, num_shares: int) -> None:
    tests = list(range(num_tests))
    shares = [sorted(set(tests) - set(leave_out(tests, share, num_shares))) for share in range(num_shares)]
    assert sorted(test for share in shares for test in share) == tests
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_share_has_two_numbers() -> None:
    assert read_share("1/3") == (0, 3) and read_share("3/3") == (2, 3)
    for wrong in ("0/3", "4/3", "1", "1/0", "a/b", "1/3/5", "-1/3", "1/1000"):
        with pytest.raises(ValueError, match="the first of three"):
            read_share(wrong)
