"""The stream of a training: every record once in each epoch, in the driver's orders, equal on all workers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.compat.elasticdl.dataset import Dataset
from legato.compat.elasticdl.stream import Stream, StreamSteps
from legato.compat.elasticdl.task_types import DatasetParams
from legato.core.errors import DataError
from legato.train.data.order import Key

sizes = st.integers(1, 40)


@settings(deadline=None)
@given(sizes, st.integers(1, 4), st.integers(1, 9), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 3))
def test_the_stream_is_what_the_driver_would_hand_out(
    num_records: int, epochs: int, batch: int, tasks: int, shuffle: bool, shuffle_shards: bool, seed: int
) -> None:
    batch = min(batch, num_records)
    stream = Stream(
        num_records,
        epochs,
        batch,
        seed=seed,
        records_per_task=batch * tasks,
        shuffle=shuffle,
        shuffle_shards=shuffle_shards,
    )
    params = DatasetParams(
        name="d",
        batch_size=batch,
        num_epochs=epochs,
        dataset_size=num_records,
        shuffle=shuffle,
        shuffle_shards=shuffle_shards,
    )
    handed = Dataset(params, batch * tasks, seed)
    want = []
    while (task := handed.hand_out(0, len(want) + 1)) is not None:
        want += [(task.epoch - 1, index) for index in task.records]
    found = [record for place in range(stream.num_places) for record in stream.records(place)]
    assert found == want
    assert set(Counter(found).values()) == {1}
    lengths = [len(stream.records(place)) for place in range(stream.num_places)]
    assert lengths == [stream.num_records_of(place) for place in range(stream.num_places)]
    assert set(lengths[:-1]) <= {batch}


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ((0, 1, 1), "dataset_size=0 is below 1"),
        ((5, -1, 1), "num_epochs=-1 is below 1"),
        ((5, 1, 0), "batch_size=0 is below 1"),
        ((5, 1, 6), "batch_size=6 is larger than dataset_size=5"),
    ],
)
def test_what_cannot_be_trained_is_refused(numbers: tuple[int, int, int], told: str) -> None:
    with pytest.raises(DataError, match=told):
        Stream(*numbers, seed=0)


@settings(deadline=None)
@given(sizes, st.integers(1, 3), st.lists(st.integers(1, 5), min_size=1))
def test_steps_take_every_micro_batch_once_however_often_they_are_divided_again(
    num_records: int, batch: int, counts: list[int]
) -> None:
    stream = Stream(num_records, 1, min(batch, num_records), seed=0)
    steps = StreamSteps(stream, counts[0])
    found, step, num_samples = [], 0, 0
    while step < steps.num_steps:
        steps.go_on(step, len(found), counts[step % len(counts)])
        num = steps.num_micro_batches_of(step)
        found += [steps.place(Key(0, step, index)) for index in range(num)]
        num_samples += steps.num_samples_of(step)
        assert 1 <= num <= counts[step % len(counts)]
        step += 1
    assert found == list(range(stream.num_places))
    assert num_samples == num_records
