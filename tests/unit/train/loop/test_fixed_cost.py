"""What each micro-batch costs whatever its size, and the advice that follows from it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import TensorDataset

import legato
from legato.train.loop import stepping
from legato.train.loop.fixed_cost import NUM_COLD, NUM_MEASURED, FixedCost


def measured(step_s: float, cost_s: float, num_micro_batches: int) -> FixedCost:
    cost = FixedCost()
    for _ in range(NUM_COLD):
        # The first steps of a process are slow.
        assert not cost.add_step(100.0, 100.0, num_micro_batches)
    for number in range(NUM_MEASURED):
        assert cost.add_step(step_s, cost_s, num_micro_batches) == (number == NUM_MEASURED - 1)
    assert not cost.is_measuring
    return cost


def test_a_notable_cost_leads_to_the_most_micro_batches_that_avoid_it() -> None:
    # 16 micro-batches of 80 µs in a step of 16 ms; with 8 of them the share is 640 / 15360.
    told = measured(0.016, 0.00128, 16).advise(32, 16, 1)
    assert told == (
        "Legato itself takes 8% of the time of a step: 80 µs for each of the 16 micro-batches, whatever their size. "
        "With micro_batch_size=64, a step has 8 micro-batches and this share is about 4%; at most 8 workers can then "
        "share a step. Another micro_batch_size gives other results."
    )


def test_if_no_number_avoids_the_cost_the_smallest_is_named() -> None:
    told = measured(0.001, 0.0009, 6).advise(8, 6, 2)
    assert told is not None and "micro_batch_size=24, a step has 2 micro-batches" in told


@pytest.mark.parametrize(
    ("cost_s", "num_micro_batches", "num_workers"),
    [(0.00049, 16, 1), (0.005, 1, 1), (0.005, 4, 4), (0.005, 7, 2)],
    ids=["not notable", "one micro-batch", "one for each worker", "not divisible"],
)
def test_there_is_no_advice_that_would_not_help(cost_s: float, num_micro_batches: int, num_workers: int) -> None:
    assert measured(0.01, cost_s, num_micro_batches).advise(32, num_micro_batches, num_workers) is None


def test_a_run_gives_the_advice_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    # By this clock, a third of a step is spent outside of Legato.
    ticks = itertools.count()
    monkeypatch.setattr(stepping, "perf_counter", lambda: float(next(ticks)))
    run = legato.elastic(global_batch_size=4, micro_batch_size=1)
    model = torch.nn.Linear(2, 1)
    run.prepare(model)
    for _ in run.epochs(2):
        for (inputs,) in run.batches(TensorDataset(torch.ones(4 * (NUM_COLD + NUM_MEASURED), 2))):
            run.backward(model(inputs).mean())
    told = [line for line in capfd.readouterr().err.splitlines() if "Legato itself takes" in line]
    assert len(told) == 1 and told[0].startswith("legato: info: ") and "micro_batch_size=4, a step has one" in told[0]
