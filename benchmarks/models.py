"""The models that are trained, the same on both sides of every comparison."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from torch.utils.data import TensorDataset

MICRO_BATCH_SIZE: Final = 32
NUM_INPUTS: Final = 784
NUM_CLASSES: Final = 10

# Widths of the hidden layers.
HIDDEN: Final[dict[str, tuple[int, ...]]] = {
    "100k": (128,),
    "10M": (2400, 2400, 1000),
    # Parameters and Adam's two moments: that many megabytes of state.
    "10MB": (600, 480),
    "100MB": (2200, 2000, 1000),
    "250MB": (3000, 3300, 2500),
}


def make_model(name: str) -> nn.Sequential:
    """Build a multilayer perceptron."""
    widths = (NUM_INPUTS, *HIDDEN[name])
    layers: list[nn.Module] = []
    for before, after in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], NUM_CLASSES))


def make_data(num_samples: int) -> TensorDataset:
    """Build a data set in memory, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, NUM_INPUTS, generator=generator)
    return TensorDataset(inputs, torch.randint(0, NUM_CLASSES, (num_samples,), generator=generator))
