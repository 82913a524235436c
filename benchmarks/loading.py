"""(k) The time in which data sets of a user's own are loaded, beside torch's DataLoader in the same process.

The two sides read the same data set, pass by pass in turn; a figure is the ratio of two neighbouring passes. The data
sets are small on purpose: the larger a sample, the less does the way to it matter. Then both sides load with the same
number of processes, which stay from pass to pass. The last row shows what ``num_workers="auto"`` saves beside
``num_workers=0``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.figures import plain
from benchmarks.jobs import Say
from legato.train.data.loader import Loader
from legato.train.data.order import Key, Layout, Order
from legato.train.data.overlap import NUM_MEASURED, Overlap

_TARGET: Final = 1.1
_TARGET_AHEAD: Final = 0.7  # loading and computing take as long as each other: 0.5 at best
_NUM_COLD: Final = 2 * NUM_MEASURED
_BATCH_SIZES: Final = (8, 32)
_NUM_BATCHES: Final = 200


class Pairs(Dataset[Any]):
    """Rows of two tensors in memory."""

    def __init__(self, num_samples: int) -> None:
        self.inputs = torch.randn(num_samples, 20)
        self.targets = torch.arange(num_samples)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, number: int) -> Any:
        return self.inputs[number], self.targets[number]


class Arrays(Pairs):
    """NumPy rows and numbers, as most data sets have them."""

    def __init__(self, num_samples: int) -> None:
        super().__init__(num_samples)
        self.rows, self.labels = self.inputs.numpy(), self.targets.tolist()

    def __getitem__(self, number: int) -> Any:
        return self.rows[number], self.labels[number]


class Dicts(Pairs):
    """A dict per sample."""

    def __getitem__(self, number: int) -> Any:
        return {"inputs": self.inputs[number], "target": number}


class Batches(Pairs):
    """Reads the samples of a batch at once."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return [self[number] for number in numbers]


class Images(Dataset[Any]):
    """Small images, flipped at random."""

    def __init__(self, num_samples: int) -> None:
        self.images = np.random.default_rng(0).integers(0, 255, (num_samples, 3, 32, 32), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> Any:
        image = torch.from_numpy(self.images[number]).float() / 255
        return image.flip(2) if torch.rand(()) < 0.5 else image, number


class Decoded(Dataset[Any]):
    """Samples that take long to make, as decoded files do."""

    def __init__(self, num_samples: int) -> None:
        self.files = [(f"{number}.png", number % 10) for number in range(num_samples)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Any:
        image = torch.rand(3, 32, 32).numpy()
        for _ in range(20):
            image = np.sin(image)
        return torch.from_numpy(image), self.files[number][1]


class Fields(Pairs):
    """Six tensors per sample."""

    def __getitem__(self, number: int) -> Any:
        row = self.inputs[number]
        return {"ids": row, "mask": row > 0, "types": row, "positions": row, "weights": row, "label": number}


_KINDS: Final[dict[str, Callable[[int], Dataset[Any]]]] = {
    "pairs of tensors": Pairs,
    "NumPy rows and labels": Arrays,
    "dicts": Dicts,
    "`__getitems__`": Batches,
    "images, flipped at random": Images,
}
_LOADED_BY_PROCESSES: Final[dict[str, Callable[[int], Dataset[Any]]]] = {
    "decoded files": Decoded,
    "dicts of six tensors": Fields,
}
_NUMS_PROCESSES: Final = (1, 2)


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per data set and size of a batch, then those about loader processes."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, kind in _KINDS.items():
            for size in _BATCH_SIZES:
                row = _measure_kind(name, kind, size, num_pairs=3 if quick else 25)
                _say_row(row, say)
                yield row
        for name, kind in _LOADED_BY_PROCESSES.items():
            for num_processes in _NUMS_PROCESSES:
                row = _measure_processes(name, kind, num_processes, num_pairs=1 if quick else 25)
                _say_row(row, say)
                yield row
        row = _measure_ahead(num_pairs=1 if quick else 9)
        _say_row(row, say)
        yield row
    finally:
        torch.set_num_threads(num_threads)


def _say_row(row: dict[str, Any], say: Say) -> None:
    say(f"{row['data']}, {row['batch']} per batch: {row['ratio']['median']:.2f} x {row['beside']}")


def _measure_kind(name: str, kind: Callable[[int], Dataset[Any]], size: int, num_pairs: int) -> dict[str, Any]:
    dataset = kind(_NUM_BATCHES * size)
    order = Order(_NUM_BATCHES * size, Layout(size, size), 0)

    def ours() -> float:
        loader = Loader(dataset, order, seed=0)
        loader.begin_pass()
        loader.follow(Key(0, step, 0) for step in range(_NUM_BATCHES))
        began = time.perf_counter()
        for _ in range(_NUM_BATCHES):
            loader.take()
        return time.perf_counter() - began

    def theirs() -> float:
        began = time.perf_counter()
        for _ in DataLoader(dataset, batch_size=size, shuffle=True):
            pass
        return time.perf_counter() - began

    return {
        "data": name,
        "batch": size,
        "beside": "DataLoader",
        "target": _TARGET,
        **_compare(ours, theirs, num_pairs, 1e6 / _NUM_BATCHES),
    }


def _measure_processes(
    name: str, kind: Callable[[int], Dataset[Any]], num_processes: int, num_pairs: int
) -> dict[str, Any]:
    size = _BATCH_SIZES[-1]
    dataset = kind(_NUM_BATCHES * size)
    order = Order(_NUM_BATCHES * size, Layout(size, size), 0)
    other = DataLoader(dataset, size, shuffle=True, num_workers=num_processes, persistent_workers=True)
    with closing(Loader(dataset, order, seed=0, num_workers=num_processes)) as loader:

        def ours() -> float:
            began = time.perf_counter()
            loader.begin_pass()
            loader.follow(Key(0, step, 0) for step in range(_NUM_BATCHES))
            for _ in range(_NUM_BATCHES):
                loader.take()
            return time.perf_counter() - began

        def theirs() -> float:
            began = time.perf_counter()
            for _ in other:
                pass
            return time.perf_counter() - began

        compared = _compare(ours, theirs, num_pairs, 1e6 / _NUM_BATCHES)
    return {
        "data": f"{name}; `num_workers={num_processes}`",
        "batch": size,
        "beside": f"DataLoader(num_workers={num_processes})",
        "target": _TARGET,
        **compared,
    }


def _measure_ahead(num_pairs: int) -> dict[str, Any]:
    size, num_batches = 32, 100
    dataset = Decoded(num_batches * size)
    order = Order(num_batches * size, Layout(size, size), 0)
    matrix = torch.randn(256, 256)
    num_products = _count_products(dataset, order, matrix)

    def train(overlap: Overlap | None) -> float:
        with closing(Loader(dataset, order, seed=0, overlap=overlap)) as loader:
            loader.begin_pass()
            loader.follow(Key(0, step, 0) for step in range(num_batches))
            began = 0.0
            for number in range(num_batches):
                if number == _NUM_COLD:
                    began = time.perf_counter()
                loader.take()
                for _ in range(num_products):
                    torch.mm(matrix, matrix)
            return time.perf_counter() - began

    def ahead() -> float:
        return train(Overlap(dataset, None, num_workers=lambda: 1, say=lambda _: None))

    compared = _compare(ahead, lambda: train(None), num_pairs, 1e6 / (num_batches - _NUM_COLD))
    return {
        "data": "decoded files; a step computes as long as it loads; `num_workers=auto`",
        "batch": size,
        "beside": "num_workers=0",
        "target": _TARGET_AHEAD,
        **compared,
    }


def _count_products(dataset: Dataset[Any], order: Order, matrix: torch.Tensor) -> int:
    """Return how many products of matrices take as long as loading a batch."""
    loader = Loader(dataset, order, seed=0)
    loader.follow(Key(0, step, 0) for step in range(20))
    began = time.perf_counter()
    for _ in range(20):
        loader.take()
    load_s = (time.perf_counter() - began) / 20
    for number in range(220):
        if number == 20:  # the first products are slow
            began = time.perf_counter()
        torch.mm(matrix, matrix)
    return max(1, round(load_s / ((time.perf_counter() - began) / 200)))


def _compare(ours: Callable[[], float], theirs: Callable[[], float], num_pairs: int, scale: float) -> dict[str, Any]:
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(num_pairs)]
    return {
        "ratio": plain([one / other for one, other in pairs]),
        "ours_us": plain([scale * one for one, _ in pairs]),
        "theirs_us": plain([scale * other for _, other in pairs]),
    }
