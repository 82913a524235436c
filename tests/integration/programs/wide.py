"""Layers whose gradients are summed in parts, one part per worker; V = 6."""

from __future__ import annotations

import argparse

import torch
from common import Images, pace, tell
from torch import nn

import legato


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    run = legato.elastic(global_batch_size=12, micro_batch_size=2, seed=3)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 900), nn.ReLU(), nn.Linear(900, 900), nn.ReLU(), nn.Linear(900, 4)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    run.prepare(model, optimizer)
    for epoch in run.epochs(args.epochs):
        for images, targets in run.batches(Images(46)):
            pace(run)
            run.backward(nn.functional.cross_entropy(model(images), targets))
            optimizer.step()
            optimizer.zero_grad()
        run.log(epoch=epoch)
    tell(run, model, optimizer)


if __name__ == "__main__":
    main()
