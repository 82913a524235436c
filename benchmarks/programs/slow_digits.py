"""Learns to read handwritten digits whose images come from slow storage, and prints the SHA-256 of what it has learned.

The waiting stands for the time that an accelerator would compute: so many workers take their share of it at once, also
on a machine that has fewer cores than they are. Arguments: epochs, seconds that one image takes to come, seed, and, if
wished, a file: the storage is slow only as long as that exists.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import legato

NUM_MICRO_BATCHES = 12  # the same share for 1, 2, 3 and 4 workers


class SlowDigits(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """1,536 images of shape ``[64]`` and what they show.

    Args:
        wait_s: seconds until an image is there.
        slow_while: as long as this file exists. None: always.
    """

    def __init__(self, wait_s: float, slow_while: Path | None) -> None:
        images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
        self._images, self._digits = images.float() / 16, digits
        self._wait_s, self._slow_while = wait_s, slow_while

    def __len__(self) -> int:
        return 1536

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._slow_while is None or self._slow_while.exists():
            time.sleep(self._wait_s)
        return self._images[index], self._digits[index]


def main() -> None:
    num_epochs, wait_s, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    run = legato.elastic(global_batch_size=8 * NUM_MICRO_BATCHES, micro_batch_size=8, seed=seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.prepare(model, optimizer)
    data = SlowDigits(wait_s, Path(sys.argv[4]) if len(sys.argv) > 4 else None)
    for _ in run.epochs(num_epochs):
        for inputs, targets in run.batches(data):
            run.backward(cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    if run.is_main:
        digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values()))
        print(f"weights sha256 {digest.hexdigest()}", flush=True)


main()
