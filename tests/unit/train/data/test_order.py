"""The order of the data: every sample once per epoch, whichever workers join and leave."""

from __future__ import annotations

import hashlib
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.errors import DataError, LayoutError
from legato.core.span import split
from legato.train.data.order import Key, Layout, Order, epochs_before, epochs_ended_by

layouts = st.builds(lambda size, count: Layout(size * count, size), size=st.integers(1, 8), count=st.integers(1, 12))


@st.composite
def orders(draw: st.DrawFn, *, shuffle: bool = True) -> Order:
    layout = draw(layouts)
    least = layout.global_batch_size - layout.micro_batch_size + 1 if shuffle else 1
    num_samples = draw(st.integers(least, least + 300))
    return Order(num_samples, layout, draw(st.integers(0, 2**40)), shuffle=shuffle)


@given(orders() | orders(shuffle=False), st.integers(0, 5))
def test_every_sample_once_per_epoch(order: Order, epoch: int) -> None:
    seen: Counter[int] = Counter()
    for step in range(order.num_steps):
        parts = order.micro_batches(epoch, step)
        assert len(parts) == order.num_micro_batches_of(step)
        assert all(len(part) > 0 for part in parts)
        assert all(len(part) == order.layout.micro_batch_size for part in parts[:-1])
        assert sum(map(len, parts)) == order.num_samples_of(step)
        if step + 1 < order.num_steps:
            assert len(parts) == order.layout.num_micro_batches
        for part in parts:
            seen.update(part.tolist())
    assert seen == Counter(range(order.num_samples))


@given(orders(), st.data())
def test_every_sample_once_under_any_change_of_membership(order: Order, data: st.DataObject) -> None:
    committed: Counter[int] = Counter()
    num_ranks = data.draw(st.integers(1, 6))
    for step in range(order.num_steps):
        # A round may break any number of times before it is committed; each time others take part in it.
        for _ in range(data.draw(st.integers(0, 2))):
            num_ranks = data.draw(st.integers(1, 6))
        taken: list[int] = []
        # Every rank looks for itself: nothing is shared between them.
        for span in split(order.num_micro_batches_of(step), num_ranks):
            own = Order(order.num_samples, order.layout, order.seed)
            for index in range(span.start, span.stop):
                taken += own.samples(Key(0, step, index)).tolist()
        assert taken == [number for part in order.micro_batches(0, step) for number in part.tolist()]
        committed.update(taken)
    assert committed == Counter(range(order.num_samples))


@given(orders())
def test_epochs_and_seeds_differ_and_repeat(order: Order) -> None:
    first = order.permutation(0).copy()
    order.permutation(1)
    order.permutation(2)
    assert np.array_equal(order.permutation(0), first)
    if order.num_samples > 30:
        assert not np.array_equal(order.permutation(1), first)
        other = Order(order.num_samples, order.layout, order.seed + 1)
        assert not np.array_equal(other.permutation(0), first)


def test_the_order_never_changes() -> None:
    # A change of these would silently change every training: it needs a new major version.
    order = Order(1000, Layout(10, 5), seed=7)
    assert order.permutation(3)[:6].tolist() == PINNED_START
    assert hashlib.sha256(order.permutation(3).astype("<i8").tobytes()).hexdigest() == PINNED_SHA256


PINNED_START = [639, 913, 189, 735, 8, 380]
PINNED_SHA256 = "2239d25c3781f8b8004668d33aa349d401735cde052d1cc1c1e0c353f333436d"


def test_all_places_are_alike() -> None:
    places = np.zeros((10, 10), dtype=np.int64)
    for epoch in range(4000):
        places[np.arange(10), Order(10, Layout(2, 1), seed=1).permutation(epoch)] += 1
    # 400 expected in each; five standard deviations.
    assert abs(places - 400).max() < 100


def test_the_unshuffled_order_is_the_order_of_the_data_set() -> None:
    order = Order(7, Layout(4, 2), seed=3, shuffle=False)
    assert [part.tolist() for step in range(2) for part in order.micro_batches(9, step)] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6],
    ]


def test_an_order_is_sent_without_what_it_can_compute() -> None:
    order = Order(100_000, Layout(10, 5), seed=3)
    want = order.permutation(4).copy()
    frame = pickle.dumps(order)
    assert len(frame) < 1000
    assert np.array_equal(pickle.loads(frame).permutation(4), want)


def test_an_order_cannot_be_changed_by_its_reader() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Order(10, Layout(2, 1), seed=3).samples(Key(0, 0, 0))[0] = 1


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((100, 32), r"not a multiple.*global_batch_size=96 or 128"),
        ((16, 32), r"not a multiple.*global_batch_size=32"),
        ((0, 1), "not positive"),
        ((8, 0), "not positive"),
        ((8, -2), "not positive"),
        ((8.0, 2), "not a whole number"),
        ((True, 1), "not a whole number"),
    ],
)
def test_a_layout_that_does_not_fit(sizes: tuple[int, int], told: str) -> None:
    with pytest.raises(LayoutError, match=told):
        Layout(*sizes)


def test_a_data_set_that_is_too_small() -> None:
    with pytest.raises(DataError, match="empty"):
        Order(0, Layout(4, 2), 0, shuffle=False)
    with pytest.raises(DataError, match="global_batch_size=2 or less"):
        Order(2, Layout(4, 2), 0)
    assert Order(2, Layout(4, 2), 0, shuffle=False).num_steps == 1


def test_an_epoch_may_be_one_step_whose_last_micro_batch_is_smaller() -> None:
    # 244 samples in batches of 64.
    order = Order(244, Layout(256, 64), 0)
    assert order.num_steps == 1
    assert [len(part) for part in order.micro_batches(0, 0)] == [64, 64, 64, 52]


@pytest.mark.parametrize("key", [Key(0, 3, 0), Key(0, -1, 0), Key(0, 2, 1), Key(0, 0, 2), Key(0, 0, -1)])
def test_a_key_that_is_not_there(key: Key) -> None:
    with pytest.raises(IndexError):
        Order(10, Layout(4, 2), 0).samples(key)


class _Several(Order):
    """A pass of five steps that goes through three epochs."""

    @property
    def num_epochs(self) -> int:
        return 3

    def epochs_before(self, step: int) -> int:
        return (0, 0, 0, 2, 2, 3)[step]


def test_epochs_are_counted_over_passes_that_have_one_or_several() -> None:
    one, several = Order(10, Layout(4, 2), seed=0), _Several(20, Layout(4, 2), seed=0)
    assert [list(epochs_ended_by(one, 4, steps)) for steps in range(4)] == [[], [], [], [5]]
    assert [list(epochs_ended_by(several, 1, steps)) for steps in range(6)] == [[], [], [], [4, 5], [], [6]]
    assert [epochs_before(several, 1, step) for step in range(5)] == [3, 3, 3, 5, 5]
    assert not epochs_ended_by(None, 4, 3)
