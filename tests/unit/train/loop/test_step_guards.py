"""Gates: a plain loop acts once per step."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from legato.core.errors import ProgramError
from legato.train.loop.step_guards import OptimizerGuard, SchedulerGuard, guard_scaler
from legato.train.state.training_state import TrainingState


class FakeTurn:
    is_open = False
    stepped = False
    num_rounds = 0


@pytest.fixture
def turn() -> FakeTurn:
    return FakeTurn()


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(2, 1)


def test_an_optimizer_acts_when_the_step_is_complete(turn: FakeTurn, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    OptimizerGuard(optimizer, turn)
    model(torch.ones(1, 2)).sum().backward()
    before = [parameter.clone() for parameter in model.parameters()]
    turn.is_open = True
    optimizer.step()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    turn.stepped = True
    optimizer.step()
    assert not any(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_closure_is_refused(turn: FakeTurn, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    OptimizerGuard(optimizer, turn)
    with pytest.raises(ProgramError, match="closure"):
        optimizer.step(lambda: 0.0)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_clearing_gradients_costs_nothing_where_there_is_none(
    turn: FakeTurn, model: nn.Module, monkeypatch: pytest.MonkeyPatch, set_to_none: bool
) -> None:
    calls: list[bool] = []
    original = torch.optim.Optimizer.zero_grad

    def count(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        calls.append(set_to_none)
        original(optimizer, set_to_none)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", count)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    OptimizerGuard(optimizer, turn)
    optimizer.zero_grad(set_to_none)
    assert calls == []
    assert "set_to_none" in inspect.signature(optimizer.zero_grad).parameters, "as Accelerate looks for it"
    model(torch.ones(1, 2)).sum().backward()
    optimizer.zero_grad(set_to_none=set_to_none)
    assert calls == [set_to_none]
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is None if set_to_none else not gradient.any() for gradient in gradients)


def test_an_optimizer_with_its_own_way_to_clear_gradients_keeps_it(turn: FakeTurn, model: nn.Module) -> None:
    class Counting(torch.optim.SGD):
        num_cleared = 0

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.num_cleared += 1
            super().zero_grad(set_to_none)

    optimizer = Counting(model.parameters(), 0.1)
    OptimizerGuard(optimizer, turn)
    optimizer.zero_grad()
    assert optimizer.num_cleared == 1


def test_a_scheduler_steps_once_per_round_and_saves_no_gate(turn: FakeTurn, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    OptimizerGuard(optimizer, turn)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    SchedulerGuard(schedule, turn)
    schedule.step()
    assert schedule.get_last_lr() == [1.0]
    for num_rounds in (1, 1, 2):
        turn.num_rounds, turn.stepped = num_rounds, True
        optimizer.step()
        schedule.step()
    assert schedule.get_last_lr() == [0.25]
    turn.num_rounds, turn.is_open, turn.stepped = 3, True, False
    schedule.step()
    assert schedule.get_last_lr() == [0.25], "in a turn that does not complete the step"


@pytest.mark.parametrize("kind", ["ExponentialLR", "StepLR", "SequentialLR", "ReduceLROnPlateau"])
def test_a_program_saves_and_copies_its_schedulers_as_without_legato(turn: FakeTurn, kind: str) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0)
    make: Any = torch.optim.lr_scheduler
    schedule = {
        "ExponentialLR": lambda: make.ExponentialLR(optimizer, 0.5),
        "StepLR": lambda: make.StepLR(optimizer, 1),
        "SequentialLR": lambda: make.SequentialLR(optimizer, [make.ConstantLR(optimizer) for _ in range(2)], [2]),
        "ReduceLROnPlateau": lambda: make.ReduceLROnPlateau(optimizer),
    }[kind]()
    plain = schedule.state_dict()
    SchedulerGuard(schedule, turn)
    assert schedule.state_dict().keys() == plain.keys()
    file = io.BytesIO()
    torch.save(schedule.state_dict(), file)
    schedule.load_state_dict(schedule.state_dict())
    for copied in (copy.deepcopy(schedule), pickle.loads(pickle.dumps(schedule))):
        assert copied.step.__self__ is copied
        assert copied.state_dict().keys() - {"step", "state_dict"} == plain.keys()
        pickle.dumps(copied)


def test_a_state_that_is_the_attributes_of_a_scheduler_loses_none_of_them(turn: FakeTurn) -> None:
    class Schedule:
        def __init__(self) -> None:
            self.num_steps = 0

        def step(self) -> None:
            self.num_steps += 1

        def state_dict(self) -> dict[str, Any]:
            return self.__dict__

    schedule = Schedule()
    SchedulerGuard(schedule, turn)
    assert schedule.state_dict() == {"num_steps": 0}
    schedule.step()
    assert schedule.num_steps == 0, "the guard is still there"


def test_a_scaler_acts_when_the_step_is_complete(turn: FakeTurn, model: nn.Module) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    OptimizerGuard(optimizer, turn)
    guard_scaler(scaler, turn)

    def act() -> None:
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    act()
    assert scaler.get_scale() == 4.0
    assert copy.deepcopy(scaler).get_scale() == pickle.loads(pickle.dumps(scaler)).get_scale() == 4.0
    turn.stepped = True
    act()
    assert scaler.get_scale() == 8.0


def test_an_optimizer_that_was_forgotten_is_refused() -> None:
    model = torch.nn.Linear(2, 1)
    other = torch.nn.Linear(2, 1)
    training_state = TrainingState(FakeTurn(), torch.device("cpu"))
    training_state.add(model)
    training_state.watch(allow_unprepared_schedulers=False)
    for module in (model, other):
        module(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    with pytest.raises(ProgramError, match="was not prepared"):
        torch.optim.SGD(model.parameters(), lr=0.1).step()


def test_a_scheduler_that_was_not_prepared_is_noticed() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training_state = TrainingState(FakeTurn(), torch.device("cpu"))
    training_state.add(optimizer)
    assert training_state.unprepared_schedulers() == []
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    assert training_state.unprepared_schedulers() == ["ExponentialLR of the SGD"]
    training_state.add(scheduler)
    assert training_state.unprepared_schedulers() == []


def test_a_scheduler_that_another_object_keeps_is_not_forgotten() -> None:
    class Keeping:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

        def state_dict(self) -> dict[str, int]:
            return {}

        def load_state_dict(self, state: object) -> None:
            pass

    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    training_state = TrainingState(FakeTurn(), torch.device("cpu"))
    training_state.add(optimizer)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    training_state.add(Keeping(torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)))
    assert training_state.unprepared_schedulers() == ["ExponentialLR of the SGD"]
    training_state.add(Keeping(optimizer))
    assert training_state.unprepared_schedulers() == []
    del scheduler


@pytest.mark.parametrize("kind", ["StepLR", "ReduceLROnPlateau"])
def test_training_does_not_begin_with_a_scheduler_that_was_not_prepared(kind: str) -> None:
    arguments = (1,) if kind == "StepLR" else ()
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    known = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    scheduler = getattr(torch.optim.lr_scheduler, kind)(optimizer, *arguments)
    training_state = TrainingState(FakeTurn(), torch.device("cpu"))
    training_state.add(optimizer)
    training_state.add(known)
    with pytest.raises(ProgramError, match=f"{kind} of the SGD was not given to run.prepare"):
        training_state.watch(allow_unprepared_schedulers=False)
    training_state.watch(allow_unprepared_schedulers=True)
    training_state.add(scheduler)
    training_state.watch(allow_unprepared_schedulers=False)


def test_a_scheduler_that_was_replaced_before_training_is_not_missed() -> None:
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scheduler.itself = scheduler  # type: ignore[attr-defined]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    training_state = TrainingState(FakeTurn(), torch.device("cpu"))
    training_state.add(optimizer)
    training_state.add(scheduler)
    training_state.watch(allow_unprepared_schedulers=False)


def test_a_scheduler_that_is_made_in_mid_training_is_refused_at_the_next_step() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    turn = FakeTurn()
    turn.stepped = True
    training_state = TrainingState(turn, torch.device("cpu"))
    training_state.add(model)
    training_state.add(optimizer)
    training_state.watch(allow_unprepared_schedulers=False)
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.raises(ProgramError, match="StepLR of the SGD"):
        optimizer.step()
    del scheduler


def test_an_optimizer_called_only_before_the_result_is_refused() -> None:
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    turn = FakeTurn()
    guard = OptimizerGuard(optimizer, turn)
    optimizer.step()
    guard.end_turn(stepped=False)
    optimizer.step()
    with pytest.raises(ProgramError, match="before the last backward"):
        guard.end_turn(stepped=True)
