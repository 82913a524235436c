"""The models that are trained, the same on both sides of every comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    "1GB": (6500, 6500, 5500),
}


class Residual(nn.Module):
    """Two convolutions with batch-norm, beside a shortcut; halves the height and the width if ``stride`` is 2."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return features of images ``[n, before, h, w]``."""
        return torch.relu(self.body(images) + self.shortcut(images))


class Transformer(nn.Module):
    """A causal transformer over tokens that it makes of its inputs, as a language model has it.

    Args:
        width: of a token's features.
        depth: number of layers.
        length: number of tokens.
    """

    NUM_TOKENS: Final = 8192

    def __init__(self, width: int, depth: int, length: int) -> None:
        super().__init__()
        self._length = length
        self.tokens, self.places = nn.Embedding(self.NUM_TOKENS, width), nn.Embedding(length, width)
        layers = [
            nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
            for _ in range(depth)
        ]
        self.layers = nn.ModuleList(layers)
        self.last = nn.Linear(width, NUM_CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return scores ``[n, NUM_CLASSES]`` of inputs ``[n, NUM_INPUTS]``."""
        tokens = (inputs[:, : self._length].abs() * 1e4).long() % self.NUM_TOKENS
        features = self.tokens(tokens) + self.places.weight
        mask = nn.Transformer.generate_square_subsequent_mask(self._length, device=inputs.device)
        for layer in self.layers:
            features = layer(features, src_mask=mask, is_causal=True)
        scores: torch.Tensor = self.last(features.mean(1))
        return scores


def make_resnet(widths: Sequence[int]) -> nn.Sequential:
    """Build a residual network over images of 28 x 28, with two blocks for each width."""
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, widths[0], 3, 1, 1)]
    before = widths[0]
    for index, width in enumerate(widths):
        layers += [Residual(before, width, 2 if index else 1), Residual(width, width, 1)]
        before = width
    # The mean of all places: torch has no deterministic backward pass of adaptive pooling.
    return nn.Sequential(*layers, nn.AvgPool2d(4 if len(widths) == 4 else 14), nn.Flatten(), nn.Linear(before, 10))


def make_normed(num_layers: int, width: int) -> nn.Sequential:
    """Build a multilayer perceptron with batch-norm in each hidden layer."""
    layers: list[nn.Module] = []
    for before in [NUM_INPUTS, *[width] * (num_layers - 1)]:
        layers += [nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, NUM_CLASSES))


OTHERS: Final[dict[str, Callable[[], nn.Module]]] = {
    "resnet": lambda: make_resnet((64, 128, 256, 512)),
    "resnet-medium": lambda: make_resnet((16, 32, 64, 128)),
    "resnet-small": lambda: make_resnet((8, 16)),
    "batch-norm": lambda: make_normed(num_layers=20, width=64),
    "language-model": lambda: Transformer(256, 2, 32),
    "transformer": lambda: Transformer(512, 8, 256),
    "transformer-small": lambda: Transformer(64, 2, 16),
}


def make_model(name: str) -> nn.Module:
    """Build a model: a multilayer perceptron, or one of `OTHERS`. Each takes ``[n, NUM_INPUTS]``."""
    if name in OTHERS:
        return OTHERS[name]()
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
