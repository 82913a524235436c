"""How long a worker waits for data, and the advice that follows from it."""

from __future__ import annotations

import time
from typing import Literal

import pytest
import torch
from torch.utils.data import Dataset

import legato
from legato.core.wire import DATA_ADVICE
from legato.train.loop import data_wait
from legato.train.loop.data_wait import MIN_JUDGED_S, NUM_COLD, NUM_JUDGED, DataWait


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def train(wait: DataWait, clock: Clock, num_steps: int, step_s: float, waited_s: float, view: int = 1) -> None:
    for _ in range(num_steps):
        clock.now += waited_s
        wait.add_load(waited_s)
        clock.now += step_s - waited_s
        wait.end_step(view)


def measured(step_s: float, waited_s: float) -> DataWait:
    clock = Clock()
    wait = DataWait(clock)
    # The first steps of a process are slow; the very first is not measured.
    train(wait, clock, NUM_COLD + 1, 100.0, 100.0)
    num_judged = max(NUM_JUDGED, int(MIN_JUDGED_S / step_s) + 1)
    train(wait, clock, num_judged, step_s, waited_s)
    assert wait.advise(0, 1, 15) is None, "the first time"
    train(wait, clock, num_judged, step_s, waited_s)
    return wait


def test_a_step_is_measured_from_commit_to_commit_but_not_across_passes_and_views() -> None:
    clock = Clock()
    wait = DataWait(clock)

    def step(view: int) -> tuple[float, float]:
        clock.now += 3.0
        wait.add_load(3.0)
        clock.now += 1.0
        return wait.end_step(view)

    assert [step(1), step(1)] == [(0.0, 0.0), (4.0, 3.0)]
    assert [step(2), step(2)] == [(0.0, 0.0), (4.0, 3.0)]
    wait.begin_pass()
    assert [step(2), step(2)] == [(0.0, 0.0), (4.0, 3.0)]


def test_a_long_wait_leads_to_as_many_processes_as_keep_up() -> None:
    wait = measured(0.45, 0.35)
    assert wait.advise(0, 1, 15) == (
        "Waiting for data takes 78% of the time of a step (350 ms of 450 ms): the worker loads each batch itself when "
        "its loop asks for it. num_workers=4 of run.batches lets 4 loader processes load ahead (num_loader_workers of "
        "legato.Trainer, dataloader_num_workers of transformers). The result stays the same, unless the program "
        "changes the data set within a pass."
    )
    assert wait.advise(0, 1, 15) is None, "once"


def test_more_processes_are_advised_where_there_are_some() -> None:
    # 2 processes deliver a step in 0.45 s, and the worker computes for 0.11 s: 9 would keep up.
    told = measured(0.45, 0.34).advise(2, 1, 15)
    assert told is not None
    assert "2 loader processes load ahead" in told and "num_workers=9 of" in told


@pytest.mark.parametrize(("num_workers", "num_spare"), [(4, 3), (4, 0), (2, -2)])
def test_advice_names_cores_that_are_missing(num_workers: int, num_spare: int) -> None:
    told = measured(0.45, 0.35).advise(0, num_workers, num_spare)
    assert told is not None
    assert "num_workers=1 of run.batches lets 1 loader process load ahead" in told
    assert "helps only if loading waits for a disk or a network" in told


def test_there_is_no_advice_without_need() -> None:
    assert measured(0.45, 0.13).advise(0, 1, 15) is None, "not notable"
    clock = Clock()
    wait = DataWait(clock)
    train(wait, clock, NUM_COLD + NUM_JUDGED, MIN_JUDGED_S, MIN_JUDGED_S)
    assert not wait.is_due and wait.advise(0, 1, 15) is None, "one step too few"
    train(wait, clock, 1, MIN_JUDGED_S, MIN_JUDGED_S)
    assert wait.is_due
    wait = DataWait(clock)
    train(wait, clock, NUM_COLD + NUM_JUDGED + 1, MIN_JUDGED_S / (NUM_JUDGED + 1), 0.2)
    assert not wait.is_due and wait.advise(0, 1, 15) is None, "the job is short"


def test_waiting_that_begins_later_and_stays_is_found() -> None:
    clock = Clock()
    wait = DataWait(clock)
    told = []
    # Such as files that are read for the first time, twice; then their disk becomes slow.
    for num_steps, waited_s in ((31, 0.9), (100, 0.0), (20, 0.9), (20, 0.0), (20, 0.9), (20, 0.9)):
        train(wait, clock, num_steps, 1.0, waited_s)
        told.append(wait.advise(0, 1, 15))
    assert told[:-1] == [None] * 5 and told[-1] is not None and f"{DATA_ADVICE} 90%" in told[-1]


class Slow(Dataset[torch.Tensor]):
    """Takes 2 ms for each sample."""

    def __len__(self) -> int:
        return NUM_COLD + 2 * NUM_JUDGED + 2

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.ones(2)


@pytest.mark.parametrize(("num_workers", "is_told"), [(0, True), ("auto", False)])
def test_a_run_gives_advice_where_the_program_decides(
    num_workers: int | Literal["auto"],
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(data_wait, "MIN_JUDGED_S", 0.0)
    run = legato.elastic(global_batch_size=1, micro_batch_size=1)
    model = torch.nn.Linear(2, 1)
    run.prepare(model)
    for _ in run.epochs(1):
        for inputs in run.batches(Slow(), num_workers=num_workers):
            run.backward(model(inputs).mean())
    told = [line for line in capfd.readouterr().err.splitlines() if DATA_ADVICE in line]
    assert [line.startswith(f"legato: info: {DATA_ADVICE} ") for line in told] == [True] * is_told
