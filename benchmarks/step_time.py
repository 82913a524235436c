"""(a) The time of a step beside DistributedDataParallel's, on the same workers and as many samples.

Both sides live in the same worker processes and take turns in blocks of steps, so that whatever else the machine does
falls on both. A figure is the ratio of two neighbouring blocks; the first tenth of a block's steps (at least one) does
not count, because the other side's data lie in the caches.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.figures import plain
from benchmarks.jobs import Say, run_job, scratch

_TARGETS: Final = {"100k": 1.15, "10M": 1.02}


@dataclass(frozen=True)
class Case:
    """One comparison.

    Args:
        model: see `benchmarks.models`.
        workers: on each side.
        reduction: ours.
        micro_batches_per_worker: more than one: gradient accumulation, with ``no_sync`` on the other side.
        blocks: pairs of blocks that count; one more warms up.
        steps_per_block: on each side.
    """

    model: str
    workers: int
    reduction: str
    micro_batches_per_worker: int
    blocks: int
    steps_per_block: int

    @property
    def target(self) -> float | None:
        """Return the ratio to reach; only perceptrons with the exact reduction have one."""
        return _TARGETS.get(self.model) if self.reduction == "exact" else None


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per case."""
    for case in _quick_cases() if quick else _cases():
        with scratch() as directory:
            arguments = json.dumps({**asdict(case), "directory": str(directory)})
            run_job("step_time", (arguments,), directory, num_workers=case.workers)
            ranks = [json.loads((directory / f"rank-{rank}.json").read_text()) for rank in range(case.workers)]
        row = {**asdict(case), **_figures(ranks), "target": case.target}
        say(
            f"{case.model:>4}, {case.workers} workers, {case.reduction:5}, {case.micro_batches_per_worker} per worker: "
            f"{row['ratio']['median']:.2f} x DDP "
            f"({row['ours_ms']['median']:.2f} : {row['theirs_ms']['median']:.2f} ms)"
        )
        yield row


def _figures(ranks: list[dict[str, list[list[float]]]]) -> dict[str, Any]:
    means = {
        side: [
            statistics.mean(statistics.mean(block[_num_cold(block) :]) for block in blocks)
            for blocks in zip(*(rank[side] for rank in ranks), strict=True)
        ]
        for side in ("ours", "theirs")
    }
    return {
        "ratio": plain([ours / theirs for ours, theirs in zip(means["ours"], means["theirs"], strict=True)]),
        "ours_ms": plain([1e3 * mean for mean in means["ours"]]),
        "theirs_ms": plain([1e3 * mean for mean in means["theirs"]]),
    }


def _num_cold(block: list[float]) -> int:
    # The other side's data still are in the caches.
    return max(1, len(block) // 10)


def _cases() -> Iterator[Case]:
    for model in ("100k", "10M"):
        for workers in (2, 4):
            yield Case(model, workers, "exact", 1, *((20, 30) if model == "100k" else (10, 5)))
            yield Case(model, workers, "exact", 2, *((20, 20) if model == "100k" else (8, 4)))
    for model in ("resnet-medium", "language-model"):
        yield Case(model, 2, "exact", 1, 10, 5)


def _quick_cases() -> Iterator[Case]:
    yield Case("100k", 2, "exact", 1, 8, 30)
    yield Case("100k", 2, "exact", 2, 8, 20)
    yield Case("10M", 2, "exact", 1, 4, 5)
