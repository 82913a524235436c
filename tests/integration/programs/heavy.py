"""A small model that is trained, and a large one that is not: ``heavy.py STEPS BYTES`` has checkpoints of that size."""

from __future__ import annotations

import sys

import torch
from common import Images, pace, tell
from torch import nn

import legato


def main() -> None:
    num_steps, num_bytes = int(sys.argv[1]), int(sys.argv[2])
    run = legato.elastic(global_batch_size=4, micro_batch_size=2, seed=1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 4))
    model.ballast = nn.Parameter(torch.rand(num_bytes // 4), requires_grad=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    run.prepare(model, optimizer)
    data = Images(4 * num_steps)
    for _ in run.epochs(1):
        for images, targets in run.batches(data):
            run.backward(nn.functional.cross_entropy(model(images), targets))
            optimizer.step()
            optimizer.zero_grad()
            pace(run)
    tell(run, model)


if __name__ == "__main__":
    main()
