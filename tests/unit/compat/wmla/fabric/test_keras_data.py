"""Both kinds of data sets of Keras programs become samples; others are refused with advice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from legato.compat.wmla.fabric.keras_data import as_samples, check_pair, collate, example_of, num_samples_of
from legato.core.errors import DataError


class Flow:
    """Has the interface of a Keras iterator."""

    def __init__(self, *, shuffle: bool = True) -> None:
        self.x, self.n, self.shuffle, self.batch_size = np.arange(10.0).reshape(5, 2), 5, shuffle, 2

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a batch was asked for")

    def _get_batches_of_transformed_samples(self, indices: Any) -> Any:
        return self.x[indices] + np.random.rand(), {"label": indices * 2}


def test_an_iterator_becomes_samples_that_draw_from_the_seeded_generator() -> None:
    samples, shuffles = as_samples(Flow())
    assert shuffles and len(samples) == 5
    np.random.seed(3)
    x, y = samples[4]
    np.random.seed(3)
    assert x.tolist() == [8.0 + (first := np.random.rand()), 9.0 + first] and y == {"label": 8}
    assert as_samples(Flow(shuffle=False))[1] is False


def test_samples_are_not_changed() -> None:
    data = [(1, 2), (3, 4)]
    assert as_samples(data) == (data, True)


def test_other_data_are_refused() -> None:
    with pytest.raises(DataError, match="samples must be reachable by number"):
        as_samples(iter([]))
    sequence = type("PyDataset", (list,), {"__module__": "keras.src.trainers"})
    with pytest.raises(DataError, match="it yields batches"):
        as_samples(type("Own", (sequence,), {})())


def test_samples_are_collated() -> None:
    x, y = collate([(np.zeros((2, 3), "float32"), 1), (np.ones((2, 3), "float32"), 2)])
    assert x.shape == (2, 2, 3) and x.dtype == np.float32 and y.tolist() == [1, 2]
    x, y = collate([(({"a": 1}, 2.0), {"b": [1]}), (({"a": 3}, 4.0), {"b": [5]})])
    assert x[0]["a"].tolist() == [1, 3] and x[1].tolist() == [2.0, 4.0] and y["b"][0].tolist() == [1, 5]
    assert num_samples_of(x) == num_samples_of(y) == 2


@pytest.mark.parametrize("sample", [(1, 2, 3), np.zeros(2), 5, {"x": 1, "y": 2}])
def test_a_sample_that_is_no_pair_is_reported(sample: Any) -> None:
    with pytest.raises(DataError, match=r"A sample must be a pair \(x, y\)"):
        check_pair(sample)


def test_a_sample_that_cannot_be_read_is_reported() -> None:
    with pytest.raises(DataError, match="The first sample cannot be read: KeyError: 0"):
        example_of({}, collate)
