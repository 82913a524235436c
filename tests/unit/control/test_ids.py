"""Ids: short, in order, never twice."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from legato.control.ids import is_job_id, make_id

times = st.floats(min_value=0, max_value=3.7e9)


@given(times=st.lists(times, min_size=1, max_size=30), seed=st.integers())
def test_each_id_is_behind_the_one_before(times: list[float], seed: int) -> None:
    last = None
    for time in times:
        made = make_id("j", time, random.Random(seed).getrandbits, last)
        assert is_job_id(made)
        assert last is None or made > last
        last = made


@given(one=times, other=times)
def test_ids_of_strangers_are_in_order_of_time(one: float, other: float) -> None:
    first, second = sorted((one, other))
    if second - max(first, 1_577_836_800) > 0.002:
        assert make_id("j", first, lambda bits: 2**bits - 1) < make_id("j", second, lambda bits: 0)


@given(last=st.one_of(st.text(), st.binary(), st.integers()), time=times)
def test_a_damaged_last_id_stops_no_new_one(last: object, time: float) -> None:
    assert is_job_id(make_id("j", time, random.Random(0).getrandbits, last))


def test_names_that_look_alike() -> None:
    assert not any(is_job_id(text) for text in ("j-", "j-123456789", "j-123456789i", "J-1234567890", "j-1234567890 "))
