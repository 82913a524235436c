"""The steps at which a training records its metrics, from which notebooks draw charts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from legato.compat.wmla.fabric.training_log import TrainingLog


def recorded(num_samples: int, batch_size: int, num_engines: int, num_epochs: int) -> Iterator[tuple[int, bool]]:
    """Yield the iteration of every record, and whether the loop has recorded it at the end of an epoch."""
    log = TrainingLog(num_samples, batch_size, num_engines=4)
    num_batches = -(-num_samples // batch_size)
    for epoch in range(num_epochs):
        log.begin_epoch(epoch)
        for first in range(0, num_batches, num_engines):
            size = min(num_engines, num_batches - first)
            log.add_step({"loss": [1.0] * size}, 1)
            if log.is_at_point and not log.is_at_end:
                yield log.num_batches, False
        assert log.is_at_end
        yield log.num_batches, True


@pytest.mark.parametrize(
    ("sizes", "points"),
    [
        ((1000, 10, 1, 1), [1, 50, -100]),
        ((1000, 10, 4, 1), [4, 52, -100]),
        # With more than 50 micro-batches per step, each step is recorded.
        ((1000, 5, 64, 1), [64, 128, 192, -200]),
        ((300, 10, 1, 4), [1, -30, 50, -60, -90, 100, -120]),
        # The last step of an epoch is recorded only as its end.
        ((500, 10, 1, 2), [1, -50, -100]),
        ((7, 10, 1, 2), [-1, -2]),
    ],
)
def test_points(sizes: tuple[int, int, int, int], points: list[int]) -> None:
    assert [-number if is_end else number for number, is_end in recorded(*sizes)] == points


def test_a_worker_that_was_given_the_state_records_the_same_points() -> None:
    here, there = TrainingLog(1000, 10, 4), TrainingLog(1000, 10, 4)
    notes: dict[str, Any] = {"loss": [1.0] * 7}
    for _ in range(7):
        here.add_step(notes, 1)
    there.load_state_dict(here.state_dict())
    for log in (here, there):
        log.add_step(notes, 2)
    assert here.num_batches == 56
    assert here.is_at_point and there.is_at_point
