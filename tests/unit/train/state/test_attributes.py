"""Legato warns of numbers that are attributes, and which a resumed job begins again or the turns of a step change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import legato

DATA = TensorDataset(torch.linspace(-1.0, 1.0, 48).reshape(24, 2))  # three steps per epoch


class Softened(nn.Module):
    """A layer with a temperature, and numbers that a program may leave alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.temperature = 1.0
        self.longest = 0
        self.is_warm = False
        self._num_calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.longest, self.is_warm = len(inputs), True
        self._num_calls += 1
        outputs: torch.Tensor = self.layer(inputs) / self.temperature
        return outputs


class Warming(torch.optim.SGD):
    """Counts its steps in an attribute."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_steps = 0

    def step(self, closure: Any = None) -> Any:
        self.num_steps += 1
        return super().step(closure)


class Counting(Softened):
    """Becomes softer with each forward pass."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.temperature *= 0.99
        return super().forward(inputs)


class Shuffling(Softened):
    """Sets a number at random in each forward pass."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.longest = int(torch.randint(9, ()))
        return self.layer(inputs)


class CountingByBuffer(Softened):
    """Counts in a buffer, and so counts steps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.temperature = 0.99 ** int(self.count)
        return super().forward(inputs)


Change = Callable[[Any, Softened], None]


def train(
    directory: Path,
    change: Change,
    *,
    num_epochs: int,
    resume: bool,
    in_turns: bool = False,
    optimizer_type: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    make: Callable[[], Softened] = Softened,
) -> None:
    run = legato.elastic(global_batch_size=8, micro_batch_size=4, checkpoint_dir=directory, resume=resume)
    model = make()
    optimizer = optimizer_type(model.parameters(), lr=0.1)
    run.prepare(model, optimizer)
    for _ in run.epochs(num_epochs):
        if not in_turns:
            change(run, model)
        for (inputs,) in run.batches(DATA):
            if in_turns:
                change(run, model)
            run.backward(model(inputs).square().mean())
            optimizer.step()
            optimizer.zero_grad()


def lower_from_epoch_2(run: Any, model: Softened) -> None:
    if run.epoch == 1:
        model.temperature = 0.5


def lower_by_epoch(run: Any, model: Softened) -> None:
    model.temperature = 0.5**run.epoch


def lower_by_step(run: Any, model: Softened) -> None:
    model.temperature = 0.9**run.step


def keep(_run: Any, _model: Softened) -> None:
    pass


def test_a_number_that_a_resumed_job_begins_with_again_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, lower_from_epoch_2, num_epochs=2, resume=False)
    assert "warning" not in capfd.readouterr().err
    train(tmp_path, lower_from_epoch_2, num_epochs=3, resume=True)
    told = capfd.readouterr().err
    assert told.count("A worker continues with temperature of the Softened = 1, ") == 1
    assert "where training has changed it to 0.5. " in told
    # The next one resumes from a job that has had the value of the program.
    train(tmp_path, lower_from_epoch_2, num_epochs=4, resume=True)
    assert "continues with" not in capfd.readouterr().err


def test_a_number_that_an_optimizer_counts_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, keep, num_epochs=1, resume=False, optimizer_type=Warming)
    train(tmp_path, keep, num_epochs=2, resume=True, optimizer_type=Warming)
    assert "A worker continues with num_steps of the Warming = 0, where" in capfd.readouterr().err


@pytest.mark.parametrize(("change", "in_turns"), [(lower_by_epoch, False), (lower_by_step, True), (keep, False)])
def test_a_number_that_the_program_computes_is_not_named(
    change: Change, in_turns: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, change, num_epochs=2, resume=False, in_turns=in_turns)
    train(tmp_path, change, num_epochs=4, resume=True, in_turns=in_turns)
    assert "continues with" not in capfd.readouterr().err


def test_a_number_that_each_turn_lowers_is_named_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, keep, num_epochs=6, resume=False, make=Counting)
    told = capfd.readouterr().err
    assert told.count("The turns of a step have changed temperature of the Counting from 0.860058 to 0.851458, ") == 1
    assert told.count("warning") == 1


@pytest.mark.parametrize(
    ("make", "change"),
    [(Shuffling, keep), (CountingByBuffer, keep), (Softened, lower_by_epoch), (Softened, lower_by_step)],
)
def test_a_number_that_each_turn_sets_is_not_named(
    make: Callable[[], Softened], change: Change, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, change, num_epochs=6, resume=False, make=make, in_turns=True)
    assert "warning" not in capfd.readouterr().err


def test_neither_what_marks_that_there_is_no_number_nor_a_key_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def set_marks(_run: Any, model: Any) -> None:
        model.best, model.key = float("nan"), getattr(model, "key", 10**400) + 1

    train(tmp_path, set_marks, num_epochs=4, resume=False, in_turns=True)
    assert "warning" not in capfd.readouterr().err


def test_a_warning_has_a_count_with_all_digits(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def count(_run: Any, model: Any) -> None:
        model.longest_count = getattr(model, "longest_count", 123456789) + 1

    train(tmp_path, count, num_epochs=6, resume=False, in_turns=True)
    assert "longest_count of the Softened from 123456804 to 123456805, as" in capfd.readouterr().err
