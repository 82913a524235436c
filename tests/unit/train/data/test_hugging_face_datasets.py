"""Data sets of Hugging Face: read as they are, the same by process or inline; what has no numbers is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pyarrow
import pytest
import torch
from torch.utils.data import Subset

from legato.core.errors import DataError
from legato.train.data.dataset_state import WHOLE_BYTES, DatasetState
from legato.train.data.fingerprints import describe_dataset, num_samples_of
from legato.train.data.loader import Loader
from legato.train.data.order import Key, Layout, Order
from legato.train.data.overlap import StrictSigner


def make(num_samples: int = 20) -> datasets.Dataset:
    rows = np.random.default_rng(0).random((num_samples, 3), np.float32)
    return datasets.Dataset.from_dict({"row": rows, "name": [f"n{i}" for i in range(num_samples)], "label": range(20)})


def shift(batch: dict[str, Any]) -> dict[str, Any]:
    """Draw random numbers for all samples of a micro-batch at once."""
    rows = torch.tensor(batch["row"])
    return {"row": rows + torch.randn(rows.shape) + np.random.rand(), "label": batch["label"]}


def on_disk(dataset: datasets.Dataset, path: Path) -> datasets.Dataset:
    datasets.DatasetDict(train=dataset).save_to_disk(path)
    return datasets.load_from_disk(path)["train"]


WAYS: dict[str, Callable[[datasets.Dataset, Path], Any]] = {
    "plain": lambda it, _: it,
    "torch": lambda it, _: it.with_format("torch"),
    "some columns": lambda it, _: it.with_format("torch", columns=["label", "row"]),
    "numpy": lambda it, _: it.with_format("numpy"),
    "a transform": lambda it, _: it.with_transform(shift),
    "other rows": lambda it, _: it.shuffle(seed=4).select(range(1, 19)).with_format("torch"),
    "a file": lambda it, path: on_disk(it, path).shuffle(seed=4).with_format("torch"),
    "torch's subset": lambda it, _: Subset(it.with_transform(shift), range(3, 20)),
}


def batches(dataset: Any, num_workers: int) -> list[Any]:
    order = Order(len(dataset), Layout(4, 2), 7, shuffle=True)
    keys = [Key(0, step, index) for step in range(order.num_steps) for index in range(order.num_micro_batches_of(step))]
    with closing(Loader(dataset, order, seed=7, num_workers=num_workers)) as loader:
        loader.follow(iter(keys))
        return [loader.take()[1] for _ in keys]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_read_gives_the_same_bits_by_process_or_inline(way: str, tmp_path: Path) -> None:
    dataset = WAYS[way](make(), tmp_path)
    assert "unreadable" not in describe_dataset(dataset, 7, exact=True)
    here, there = batches(dataset, 0), batches(dataset, 2)
    assert sum(len(batch["label"]) for batch in here) == len(dataset)
    assert as_plain(here) == as_plain(there)


def as_plain(node: Any) -> Any:
    if isinstance(node, torch.Tensor):
        return str(node.dtype), node.tolist()
    if isinstance(node, dict):
        return {name: as_plain(value) for name, value in node.items()}
    return [as_plain(value) for value in node] if isinstance(node, list | tuple) else node


@pytest.mark.parametrize("way", WAYS)
def test_loader_processes_stay_until_the_format_changes(way: str, tmp_path: Path) -> None:
    dataset = WAYS[way](make(), tmp_path)
    state, strict = DatasetState(dataset), DatasetState(dataset, signer=StrictSigner)
    batches(dataset, 0)
    assert not state.has_changed()
    assert not strict.has_changed()  # so num_workers="auto" may start a process
    inner = dataset.dataset if isinstance(dataset, Subset) else dataset
    inner.set_format("numpy", columns=["label"])
    assert state.has_changed()
    assert strict.has_changed()


def test_a_file_is_not_read_to_compare_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = on_disk(make(), tmp_path).with_format("torch")
    monkeypatch.setattr("legato.train.data.dataset_state._checksum", lambda _: pytest.fail("the file was read"))
    assert not DatasetState(dataset).has_changed()


LABELS: dict[str, Callable[[Any], Any]] = {
    "from_pandas": lambda labels: datasets.Dataset.from_pandas(pandas.DataFrame({"label": labels}, copy=False)),
    "a table": lambda labels: datasets.Dataset(pyarrow.table({"label": pyarrow.array(labels)})),
    "two blocks": lambda labels: datasets.concatenate_datasets([make(), LABELS["a table"](labels)]),
    "a column": lambda labels: [pyarrow.array(labels)],
    "a batch": lambda labels: [pyarrow.record_batch({"label": pyarrow.array(labels)})],
}


@pytest.mark.parametrize("way", LABELS)
@pytest.mark.parametrize("signer", [None, StrictSigner])
def test_a_change_of_the_array_that_a_table_was_made_of_is_noticed(way: str, signer: Any) -> None:
    """Arrow does not copy it: the data set changes, and loader processes have a copy of what it was."""
    labels = np.zeros(20, np.int64)
    state = DatasetState(LABELS[way](labels), signer=signer)
    assert not state.has_changed()
    labels[7] = 1
    assert state.has_changed()


def test_categories_are_compared() -> None:
    labels = np.zeros(20, np.int32)
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array(labels), pyarrow.array([5, 6]))
    state = DatasetState([column])
    assert not state.has_changed()
    labels[7] = 1
    assert state.has_changed()


def test_a_large_table_in_memory_is_not_compared_before_each_batch() -> None:
    labels = np.zeros(WHOLE_BYTES // 8 + 1, np.int64)
    assert DatasetState(datasets.Dataset.from_dict({"label": labels}), signer=StrictSigner).has_changed()


def test_a_stream_and_a_dict_are_refused_with_what_to_do() -> None:
    with pytest.raises(DataError, match=r"Cannot cut an IterableDataset .* Load it without streaming=True, or .*from_"):
        num_samples_of(make().to_iterable_dataset())
    both = datasets.DatasetDict(train=make(), test=make())
    with pytest.raises(DataError, match=r"the data sets 'train', 'test'. Pass one of them, such as dataset\['train'\]"):
        num_samples_of(both)
    with pytest.raises(DataError, match="DatasetDict"):
        num_samples_of(datasets.IterableDatasetDict(train=make().to_iterable_dataset()))


def test_the_advice_for_a_stream_works() -> None:
    stream = make().to_iterable_dataset()
    dataset = datasets.Dataset.from_generator(lambda: iter(stream), features=stream.features)
    assert list(dataset) == list(make())
