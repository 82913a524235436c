"""What a program gave to Legato: its state as named tensors."""

from __future__ import annotations

from typing import Any

import torch
from tests.unit.train.test_gates import Keeper
from torch import nn

from legato.train.belongings import Belongings


class Shadow:
    """An object with tensors as state."""

    def __init__(self) -> None:
        self.values = [torch.zeros(2)]

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.values, "count": 3}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state["shadow"]


def kept(*things: Any) -> Belongings:
    belongings = Belongings(Keeper(), torch.device("cpu"))
    for thing in things:
        belongings.add(thing)
    return belongings


def test_every_tensor_of_the_state_has_a_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    model(torch.rand(3, 2)).sum().backward()
    optimizer.step()
    found = dict(kept(model, optimizer, Shadow()).named_tensors(lambda buffer: buffer))
    parameters = ["0.weight", "0.bias", "1.weight", "1.bias"]
    keys = ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    assert list(found) == [
        *(f"parameter {name}" for name in parameters),
        *(f"buffer 1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")),
        *(f"{key} of {name} in AdamW" for name in parameters for key in keys),
        "Shadow['shadow'][0]",
    ]
    assert found["parameter 0.weight"].data_ptr() == model[0].weight.data_ptr()


def test_names_tell_models_and_optimizers_apart() -> None:
    models = [nn.Linear(2, 1, bias=False) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        model(torch.rand(3, 2)).sum().backward()
        optimizer.step()
    assert [name for name, _ in kept(*models, *optimizers).named_tensors(lambda buffer: buffer)] == [
        "parameter weight of model 0 (Linear)",
        "parameter weight of model 1 (Linear)",
        "momentum_buffer of weight of model 0 (Linear) in SGD 0",
        "momentum_buffer of weight of model 1 (Linear) in SGD 1",
    ]
