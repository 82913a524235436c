"""Prints how many micro-batches of each step belong to this worker; V = 8.

``--dies N``: worker N dies in its first step, after the reduction.
"""

from __future__ import annotations

import argparse
import os

import torch
from common import Images, pace, tell
from torch import nn

import legato
from legato.train.process import faults


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dies", default="")
    args = parser.parse_args()
    has_begun = False
    run = legato.elastic(global_batch_size=16, micro_batch_size=2, seed=6)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run.prepare(model, optimizer)
    for _ in run.epochs(8):
        turns: list[int] = []
        for images, targets in run.batches(Images(160, augment=True)):
            pace(run)
            if not has_begun and args.dies == os.environ.get("LEGATO_WORKER"):
                faults.plan(int(args.dies), f"{args.dies}@{run.step + 1}:reduce=kill")
            has_begun = True
            run.backward(nn.functional.cross_entropy(model(images), targets))
            optimizer.step()
            optimizer.zero_grad()
            turns.append(run.micro_batch)
            if run.stepped:
                # The first turn may repeat a micro-batch of another worker; this worker's own lie next to one another.
                num_own = len(turns) - (turns[-1] - turns[0] != len(turns) - 1)
                print(f"step {run.step}: {num_own} of 8 with {run.num_workers} workers", flush=True)
                turns = []
    tell(run, model, optimizer)


if __name__ == "__main__":
    main()
