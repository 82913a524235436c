"""Learns to read real digits, slowly as long as a file exists, and says things that a page must not believe."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import legato

NUM_MICRO_BATCHES = 12  # the same share for 1, 2, 3 and 4 workers


class Digits(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """1,536 images of shape ``[64]`` and what they show; each takes 10 ms to come while a file exists."""

    def __init__(self, slow_while: Path) -> None:
        images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
        self._images, self._digits = images.float() / 16, digits
        self._slow_while = slow_while

    def __len__(self) -> int:
        return 1536

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._slow_while.exists():
            time.sleep(0.01)
        return self._images[index], self._digits[index]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--slow-while", type=Path, required=True)
    args = parser.parse_args()
    run = legato.elastic(global_batch_size=8 * NUM_MICRO_BATCHES, micro_batch_size=8)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    run.prepare(model, optimizer)
    data = Digits(args.slow_while)
    if run.is_main:
        print("\x1b[31mred\x1b[0m <img src=x onerror=\"document.title='broken in'\"> & <b>bold</b>", flush=True)
    for _ in run.epochs(args.epochs):
        for inputs, targets in run.batches(data):
            run.backward(cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped and run.loss is not None:
                run.log(loss=run.loss)
    print("done", flush=True)


main()
