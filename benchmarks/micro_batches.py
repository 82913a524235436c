"""(l) The fixed cost of a step and of each of its micro-batches, beside a plain loop in the same processes.

Both sides take turns in blocks of steps. The plain loop accumulates as many micro-batches as one worker trains, of the
same size, and sends nothing; so with two workers the difference contains the sum over them. Most models are small on
purpose: the fixed cost does not depend on the model's size, so a larger one hides it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.figures import plain
from benchmarks.jobs import Say, run_job, scratch

_TARGET: Final = 1.03
_TARGET_V: Final = (1, 4)
_MICRO_BATCHES_PER_BLOCK: Final = 320
_SLOW: Final = ("resnet-medium", "language-model")
_SLOW_PER_BLOCK: Final = 12
_LIMIT_S: Final = 600.0


@dataclass(frozen=True)
class Case:
    """One comparison.

    Args:
        model: see `benchmarks.models`.
        workers: of our side.
        micro_batches: of a step, on all workers together.
        blocks: pairs of blocks that count; one more warms up.
        steps_per_block: on each side.
    """

    model: str
    workers: int
    micro_batches: int
    blocks: int
    steps_per_block: int


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per case."""
    for case in _cases(blocks=5 if quick else 25):
        with scratch() as directory:
            arguments = json.dumps({**asdict(case), "directory": str(directory)})
            run_job("micro_batches", (arguments,), directory, num_workers=case.workers, limit_s=_LIMIT_S)
            ranks = [json.loads((directory / f"rank-{rank}.json").read_text()) for rank in range(case.workers)]
        row = {**asdict(case), **_figures(case, ranks)}
        say(
            f"{case.model}, {case.workers} workers, V={case.micro_batches:2}: {row['ratio']['median']:.2f} x plain, "
            f"{row['extra_us']['median']:.0f} us per micro-batch"
        )
        yield row


def _figures(case: Case, ranks: list[dict[str, list[float]]]) -> dict[str, Any]:
    ours, theirs = (
        [statistics.mean(block) for block in zip(*(rank[side] for rank in ranks), strict=True)]
        for side in ("ours", "theirs")
    )
    per_worker = case.micro_batches / case.workers
    pairs = list(zip(ours, theirs, strict=True))
    is_target = case.workers == 1 and case.model == "100k" and case.micro_batches in _TARGET_V
    return {
        "ratio": plain([one / other for one, other in pairs]),
        "ours_ms": plain([1e3 * one for one in ours]),
        "theirs_ms": plain([1e3 * other for other in theirs]),
        "extra_us": plain([1e6 * (one - other) / per_worker for one, other in pairs]),
        "target": _TARGET if is_target else None,
    }


def _cases(blocks: int) -> Iterator[Case]:
    for model, workers, numbers in (
        ("100k", 1, (1, 2, 4, 8, 16)),
        ("batch-norm", 1, (1, 4, 16)),
        ("100k", 2, (2, 4, 8, 16)),
    ):
        for number in numbers:
            yield Case(model, workers, number, blocks, max(5, _MICRO_BATCHES_PER_BLOCK * workers // number))
    for model in _SLOW:
        for workers, number in ((1, 1), (1, 4), (2, 4)):
            yield Case(model, workers, number, min(blocks, 8), max(2, _SLOW_PER_BLOCK * workers // number))
