"""Whether a data set has changed: seen in what programs change, also next to what cannot be pickled; cheap if large."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from legato.train.data.dataset_state import DatasetState


class Everything(Dataset[Any]):
    """Has what data sets have, and what cannot be pickled too."""

    width = 3

    def __init__(self) -> None:
        self.items = [(f"{number}.png", number) for number in range(100)]
        self.files = [(f"{number}.png", number) for number in range(20_000)]
        self.mixed = [threading.Lock(), *range(20_000)]
        self.numbers = np.arange(10.0)
        self.objects = np.array([1, "a", None], dtype=object)
        self.large = np.zeros((32 << 20,), np.uint8)
        self.tensor = torch.zeros(10)
        self.generator = torch.Generator()
        self.dice = random.Random(0)
        self.chosen = {1, 2}
        self.lock = threading.Lock()
        self.file = Path("/dev/null").open()  # noqa: SIM115 -- as data sets keep them
        self.transform = self.make_transform()
        self.itself = self

    def make_transform(self) -> Callable[[float], float]:
        factors = [1.0]
        self.factors = factors
        return lambda value: value * factors[0]

    def __getitem__(self, number: int) -> Any:
        return self.items[number]


CHANGES: dict[str, Callable[[Everything], Any]] = {
    "an attribute": lambda it: setattr(it, "scale", 2),
    "an item of a list": lambda it: it.items.__setitem__(3, ("other.png", 3)),
    "the order of a list": lambda it: it.items.reverse(),
    "an item of a long list": lambda it: it.files.__setitem__(15_000, ("other.png", 3)),
    "an item of a long list of anything": lambda it: it.mixed.__setitem__(15_000, 3),
    "an array": lambda it: it.numbers.__setitem__(4, 1.5),
    "an array of objects": lambda it: it.objects.__setitem__(2, 5),
    "a large array": lambda it: it.large.fill(1),
    "a tensor": lambda it: it.tensor[2].add_(1),
    "a tensor behind its back": lambda it: it.tensor.data.add_(1),
    "a generator of torch": lambda it: torch.rand(1, generator=it.generator),
    "a generator of Python": lambda it: it.dice.random(),
    "a set": lambda it: it.chosen.add(3),
    "another function": lambda it: setattr(it, "transform", abs),
    "what a function closes over": lambda it: it.factors.__setitem__(0, 2.0),
    "another lock": lambda it: setattr(it, "lock", threading.Lock()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen_and_nothing_else(what: str) -> None:
    dataset = Everything()
    state = DatasetState(dataset, None)
    assert not state.has_changed()
    CHANGES[what](dataset)
    assert state.has_changed()
    dataset.file.close()


def test_a_setting_of_the_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Everything()
    state = DatasetState(dataset)
    monkeypatch.setattr(Everything, "width", 4)
    assert state.has_changed()
    dataset.file.close()


def test_the_rows_of_a_subset_are_seen() -> None:
    subset = Subset(TensorDataset(torch.zeros(8)), list(range(8)))
    state = DatasetState(subset)
    subset.indices = list(range(4))
    assert state.has_changed()


def test_what_cannot_be_compared_counts_as_changed() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert DatasetState(deep).has_changed()


def test_a_file_that_is_mapped_is_not_read(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "data", np.uint8, "w+", shape=(1 << 20,))
    state = DatasetState([mapped])
    mapped[5] = 1  # loader processes see the same file
    assert not state.has_changed()
