"""Joining workers get the state of a program's schedulers, although the program does not pass them to Legato."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.compat.wmla.fabric.travelling import travel
from torch.optim import lr_scheduler

from legato.compat.wmla.fabric.schedules import Schedule, find_schedules
from legato.core.errors import ProgramError


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch),
        lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [1, 3]),
        lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=20),
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.5)], [2]
        ),
    ],
)
def test_a_schedule_continues_in_another_worker(make: Callable[[Any], Any]) -> None:
    def step(scheduler: Any, number: int) -> float:
        scheduler.optimizer.step()
        scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        rate: float = scheduler.optimizer.param_groups[0]["lr"]
        return rate

    alone, first, second = (make(optimizer()) for _ in range(3))
    want = [step(alone, number) for number in range(6)]
    (mine,), (theirs,) = find_schedules(first.optimizer), find_schedules(second.optimizer)
    assert mine.optimizer is first.optimizer
    found = [step(first, number) for number in range(3)]
    theirs.load_state_dict(travel(mine.state_dict()))
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    assert found + [step(second, number) for number in range(3)] == want


def test_schedules_are_found_in_one_order_whenever_they_were_made() -> None:
    def names(kinds: list[Callable[[Any], Any]]) -> list[Any]:
        one = optimizer()
        kept = [kind(one) for kind in kinds]
        found = [schedule.state_dict() for schedule in find_schedules(one)]
        del kept
        return [state.get("gamma") or state.get("total_iters") for state in found]

    kinds: list[Callable[[Any], Any]] = [
        lambda one: lr_scheduler.StepLR(one, 2, gamma=0.5),
        lambda one: lr_scheduler.LinearLR(one, total_iters=7),
        lambda one: lr_scheduler.StepLR(one, 2, gamma=0.25),
    ]
    assert names(kinds) == names(kinds[::-1]) == [7, 0.25, 0.5]


def test_a_schedule_in_a_step_of_the_program_acts_once_per_step_of_the_job() -> None:
    scheduler: Any = lr_scheduler.ExponentialLR(optimizer(), 0.5)
    (schedule,) = find_schedules(scheduler.optimizer)

    def turn(*, stepped: bool) -> float:
        schedule.begin_turn()
        scheduler.step()
        schedule.end_turn(stepped=stepped)
        rate: float = scheduler.optimizer.param_groups[0]["lr"]
        return rate

    scheduler.optimizer.step()
    assert [turn(stepped=stepped) for stepped in (False, True, True, False, False)] == [1, 0.5, 0.25, 0.25, 0.25]
    schedule.begin_turn()
    schedule.end_turn(stepped=True)
    assert scheduler.optimizer.param_groups[0]["lr"] == 0.125, "it was called in another turn of this step"
    scheduler.step()
    assert scheduler.optimizer.param_groups[0]["lr"] == 0.0625, "outside of turns it acts at once"
    schedule.begin_turn()
    with pytest.raises(ProgramError, match="a value of its own micro-batch"):
        scheduler.step(0.5)


def test_schedulers_of_other_optimizers_are_ignored() -> None:
    scheduler = lr_scheduler.StepLR(optimizer(), 2)
    assert find_schedules(optimizer()) == []
    assert [type(schedule) for schedule in find_schedules(scheduler.optimizer)] == [Schedule]
