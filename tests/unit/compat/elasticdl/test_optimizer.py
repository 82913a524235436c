"""The optimizer stays the program's own, acts on the scale that it asks for, and has the historic attributes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from legato.compat.elasticdl.optimizer import distribute
from legato.core.errors import UsageError


def make(**options: Any) -> tuple[torch.nn.Parameter, Any]:
    parameter = torch.nn.Parameter(torch.zeros(2))
    return parameter, distribute(torch.optim.SGD([parameter], lr=1.0), **options)


def test_it_is_the_object_that_it_was_and_of_its_class() -> None:
    own = torch.optim.Adam([torch.nn.Parameter(torch.zeros(2))])
    assert distribute(own, fixed_global_batch_size=True) is own
    assert isinstance(own, torch.optim.Adam) and type(own).__name__ == "Adam"
    assert distribute(own) is own and not own.fixed_global_batch_size  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "num_micro_batches", "variables", "factor"),
    [
        ({}, 3, {}, 1.0),
        ({"op": "Sum"}, 3, {}, 3.0),
        ({}, 3, {"LEGATO_ELASTICDL_SUM": "1"}, 3.0),
        ({"fixed_global_batch_size": True}, 3, {"LEGATO_ELASTICDL_SUM": "1"}, 1.0),
        ({"fixed_batch_size": True}, 3, {"WORKER_NUM": "4"}, 1.0),
        ({"fixed_global_batch_size": True, "global_batch_num_per_step": 8}, 3, {"WORKER_NUM": "4"}, 0.5),
        ({"gradient_predivide_factor": 2.0, "compression": "fp16"}, 3, {}, 1.0),
    ],
    ids=["mean", "sum", "switch", "fixed", "fixed of 2020", "divisor", "accepted"],
)
def test_the_mean_is_scaled_as_the_program_wants_it(
    options: dict[str, Any],
    num_micro_batches: int,
    variables: dict[str, str],
    factor: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    parameter, optimizer = make(**options)
    optimizer.num_micro_batches, optimizer.has_controller = num_micro_batches, True
    parameter.grad = torch.tensor([1.0, -2.0])
    optimizer.step()
    assert (-parameter).tolist() == [factor, -2.0 * factor]


def test_what_programs_call_is_there() -> None:
    parameter, optimizer = make(backward_passes_per_step=2)
    parameter.grad = torch.ones(2)
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert parameter.grad.tolist() == [0.0, 0.0] and optimizer.backward_passes_per_step == 2
    optimizer.zero_grad()
    assert parameter.grad is None and optimizer.update_gradients
    optimizer.set_backward_passes_per_step(1)
    assert optimizer.backward_passes_per_step == 1


@pytest.mark.parametrize("way", ["argument", "call", "attribute"])
def test_without_a_controller_passes_of_a_fixed_global_batch_are_added_up_until_the_step(way: str) -> None:
    parameter, optimizer = make(fixed_global_batch_size=True, backward_passes_per_step=2 if way == "argument" else 1)
    if way == "call":
        optimizer.set_backward_passes_per_step(2)
    elif way == "attribute":
        optimizer.backward_passes_per_step = 2
    for turn, has_acted in enumerate((False, True, False, True)):
        (parameter * torch.tensor([1.0, 3.0]) * (1 + turn % 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert optimizer.update_gradients is has_acted
    # Each step takes the mean of its two passes, as if one batch had both.
    assert (-parameter).tolist() == [3.0, 9.0]


def test_without_a_controller_the_divisor_of_a_fixed_global_batch_is_the_programs() -> None:
    parameter, optimizer = make(fixed_global_batch_size=True, backward_passes_per_step=2, global_batch_num_per_step=4)
    for _ in range(2):
        parameter.sum().backward()
        optimizer.step()
    assert (-parameter).tolist() == [0.5, 0.5]


def test_invalid_settings_are_refused() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    own = torch.optim.SGD([parameter], lr=1.0)
    with pytest.raises(ValueError, match="have names twice: w"):
        distribute(own, named_parameters=[("w", parameter), ("w", parameter)])
    with pytest.raises(ValueError, match="1 of the optimizer's parameters are missing"):
        distribute(own, named_parameters=[])
    with pytest.raises(ValueError, match="not pairs"):
        distribute(own, named_parameters=[parameter])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="Adasum is not supported"):
        distribute(own, op="Adasum")
    with pytest.raises(UsageError, match="backward_passes_per_step=0"):
        distribute(own, backward_passes_per_step=0)
