"""Programs whose result depends on the turns of their loop are warned: the number of turns depends on the workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

import legato

DATA = TensorDataset(torch.linspace(-1.0, 1.0, 144).reshape(24, 6), torch.arange(24) % 2)
Body = Callable[[Any, nn.Module, torch.optim.Optimizer, int], bool | None]


def warnings_of(
    body: Body, capfd: pytest.CaptureFixture[str], *, micro_batch_size: int = 2, scaler: bool = False
) -> list[str]:
    """Return the warnings of a run of two epochs of three steps; the body is what follows the backward pass."""
    run = legato.elastic(global_batch_size=8, micro_batch_size=micro_batch_size)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.prepare(model, optimizer)
    if scaler:
        run.prepare(torch.amp.GradScaler("cpu"))
    for _ in run.epochs(2):
        for number, (inputs, targets) in enumerate(run.batches(DATA)):
            run.backward(cross_entropy(model(inputs), targets))
            if body(run, model, optimizer, number):
                break
            optimizer.zero_grad()
    lines = capfd.readouterr().err.splitlines()
    return [line.removeprefix("legato: warning: ") for line in lines if line.startswith("legato: warning: ")]


def accumulate(_run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    if (number + 1) % 3 == 0:
        optimizer.step()


def decay(_run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
    optimizer.step()


def stop_early(_run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> bool:
    optimizer.step()
    return number == 5


def stop_after_first_turn(_run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> bool:
    optimizer.step()
    return number == 4


@pytest.mark.parametrize(
    ("body", "beginning", "advice"),
    [
        (accumulate, "No optimizer acted in step 2, and in others", "Call optimizer.step() in every turn."),
        (decay, "The learning rate changed from 0.1 to 0.0333333 between two turns of step 1.", "from run.step"),
        (stop_early, "The program left the loop over run.batches in the middle of step 2,", "`if run.stepped:`"),
        (stop_after_first_turn, "The program left the loop over run.batches in the middle of step 2,", "run.step"),
    ],
)
def test_a_program_that_counts_turns_is_warned_once(
    body: Body, beginning: str, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (text,) = warnings_of(body, capfd)
    assert text.startswith(beginning)
    assert advice in text


def shrink(_run: Any, model: nn.Module, optimizer: torch.optim.Optimizer, _number: int) -> None:
    optimizer.step()
    model.bias.data.mul_(0.9)


def clamp(_run: Any, model: nn.Module, optimizer: torch.optim.Optimizer, _number: int) -> None:
    optimizer.step()
    model.weight.data.clamp_(-0.01, 0.01)


@pytest.mark.parametrize(("body", "name"), [(shrink, "bias"), (clamp, "weight")])
def test_a_program_that_changes_parameters_in_each_turn_is_warned_once(
    body: Body, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (text,) = warnings_of(body, capfd)
    assert text.startswith(f"The program changed parameter {name} in a turn of step 1 before the step was complete.")
    assert "under `if run.stepped:`, after optimizer.step()" in text


def test_workers_with_one_turn_per_step_change_parameters_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert warnings_of(shrink, capfd, micro_batch_size=8) == []


class Shadow:
    """The average of a parameter, as an object of the program's own."""

    def __init__(self, parameter: torch.Tensor) -> None:
        self.mean = parameter.detach().clone()

    def update(self, parameter: torch.Tensor) -> None:
        self.mean.mul_(0.9).add_(parameter.detach(), alpha=0.1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.mean = state["mean"]


@pytest.mark.parametrize("in_every_turn", [True, False])
def test_a_program_that_averages_in_each_turn_is_warned(in_every_turn: bool, capfd: pytest.CaptureFixture[str]) -> None:
    run = legato.elastic(global_batch_size=8, micro_batch_size=2)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    averaged = run.prepare(AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)))
    shadow = Shadow(model.bias)
    run.prepare(model, optimizer, shadow)
    for _ in run.epochs(2):
        for inputs, targets in run.batches(DATA):
            run.backward(cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            if in_every_turn or run.stepped:
                averaged.update_parameters(model)
            if run.stepped or (in_every_turn and run.step > 1):
                shadow.update(model.bias)
    warning = "The program changed parameter module.weight of model 0 (AveragedModel) and 2 more in a turn of step 4"
    assert (warning in capfd.readouterr().err) == in_every_turn


class Codebook(nn.Linear):
    """A layer whose forward pass writes a parameter."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs)
        with torch.no_grad():
            self.bias.lerp_(outputs.mean(0), 0.1)
        return outputs


def test_a_forward_pass_that_writes_a_parameter_is_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    run = legato.elastic(global_batch_size=8, micro_batch_size=8)
    codebook = Codebook(6, 2)
    codebook.bias.requires_grad_(False)
    optimizer = torch.optim.SGD([codebook.weight], 0.1)
    run.prepare(codebook, optimizer)
    for inputs, targets in run.batches(DATA):
        run.backward(cross_entropy(codebook(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
    assert "The program changed parameter bias in a turn of step 1" in capfd.readouterr().err


def act_when_stepped(run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, _number: int) -> None:
    if run.stepped:
        optimizer.param_groups[0]["lr"] = 0.1 / run.step
        optimizer.step()


def decay_by_step(run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, _number: int) -> None:
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.1 / (run.step + 1)


def add_group(run: Any, model: nn.Module, optimizer: torch.optim.Optimizer, _number: int) -> None:
    if run.stepped and run.step == 2:
        model.weight.requires_grad_(False)
    optimizer.step()


def stop_after_step(run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, _number: int) -> bool:
    optimizer.step()
    return bool(run.stepped and run.step % 3 == 2)


@pytest.mark.parametrize("body", [act_when_stepped, decay_by_step, add_group, stop_after_step])
@pytest.mark.parametrize("micro_batch_size", [2, 8])
def test_a_program_that_counts_steps_is_not_warned(
    body: Body, micro_batch_size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert warnings_of(body, capfd, micro_batch_size=micro_batch_size) == []


def test_a_loop_that_ends_before_the_first_turn_of_a_step_loses_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    run = legato.elastic(global_batch_size=8, micro_batch_size=2)
    model = nn.Linear(6, 2)
    run.prepare(model)
    for inputs, targets in run.batches(DATA):
        if run.step == 2:
            break
        run.backward(cross_entropy(model(inputs), targets))
    next(iter(run.batches(DATA)))
    assert "warning" not in capfd.readouterr().err


def leave_out_step_2(run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, _number: int) -> None:
    if run.step != 2:
        optimizer.step()


def overflow(run: Any, model: nn.Module, optimizer: torch.optim.Optimizer, _number: int) -> None:
    if run.stepped and run.step == 2:
        model.bias.data.fill_(float("nan"))
    if run.loss is not None and math.isfinite(run.loss):
        optimizer.step()


@pytest.mark.parametrize("body", [leave_out_step_2, overflow])
def test_a_program_that_leaves_a_step_out_on_purpose_is_not_warned(
    body: Body, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [text for text in warnings_of(body, capfd) if "No optimizer acted" in text] == []


def accumulate_two_steps(_run: Any, _model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    if number % 2 == 1:
        optimizer.step()


def test_a_program_that_loses_every_second_step_is_warned(capfd: pytest.CaptureFixture[str]) -> None:
    (text,) = warnings_of(accumulate_two_steps, capfd, micro_batch_size=8)
    assert text.startswith("No optimizer acted in step 4, and in others shortly before it")


def test_a_scaler_may_leave_a_step_out(capfd: pytest.CaptureFixture[str]) -> None:
    assert warnings_of(lambda *_: None, capfd, scaler=True) == []
