"""Two backward passes in every turn, a part that is thawed in a later epoch, batch-norm without momentum; V = 3."""

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
    run = legato.elastic(global_batch_size=9, micro_batch_size=3, seed=2, num_backwards=2)
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10, momentum=None), nn.Tanh())
    first, second = nn.Linear(10, 4), nn.Linear(10, 1)
    optimizer = torch.optim.RMSprop([*body.parameters(), *first.parameters(), *second.parameters()], 1e-3)
    body[1].requires_grad_(False)
    run.prepare(body, first, second, optimizer)
    for epoch in run.epochs(args.epochs):
        if epoch == args.epochs // 2:
            body[1].requires_grad_(True)
        for images, targets in run.batches(Images(38, augment=True)):
            pace(run)
            hidden = body(images)
            run.backward(nn.functional.cross_entropy(first(hidden), targets))
            hidden = body(images + 0.01)
            run.backward(second(hidden).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        run.log(epoch=epoch)
    tell(run, body, first, second, optimizer)


if __name__ == "__main__":
    main()
