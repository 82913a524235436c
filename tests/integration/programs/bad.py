"""Programs with something wrong, by ``--how``; without it nothing is wrong."""

from __future__ import annotations

import argparse
import os
import resource
from pathlib import Path

import torch
from common import Images, pace, tell
from torch import nn

import legato


def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    if any(image[0, 0, 0] == REFUSED for image, _ in samples):
        raise ValueError("cannot collate this one")
    images, targets = zip(*samples, strict=True)
    return torch.stack(images), torch.tensor(targets)


parser = argparse.ArgumentParser()
parser.add_argument("--how", default="")
args = parser.parse_args()
REFUSED = Images(40)[17][0][0, 0, 0] if args.how == "collate" else None


def is_odd() -> bool:
    """Whether this worker was started after the test asked for one that differs."""
    return Path(os.environ.get("LEGATO_TEST_REINS", "/nowhere"), "odd").exists()


def main() -> None:
    if args.how == "dies":
        raise RuntimeError("no such weights")
    if args.how == "disk-full":
        # As a full disk: whatever is written beyond the first bytes of a file fails.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
    run = legato.elastic(
        global_batch_size=8,
        micro_batch_size=3 if args.how == "layout" else 2,
        seed=3,
        stop_on_nan=args.how == "stop-on-nan",
    )
    num_outputs = 5 if args.how == "odd-model" and is_odd() else 4
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, num_outputs))
    if args.how == "frozen":
        model.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters() if args.how != "frozen" else [torch.zeros(1)], 0.01)
    run.prepare(model, optimizer)
    num_samples = {"empty": 0, "small": 6}.get(args.how, 40)
    data = Images(num_samples, start=9 if args.how == "odd-data" and is_odd() else 7)
    for _ in run.epochs(8):
        for images, targets in run.batches(data, collate_fn=collate):
            pace(run)
            loss = nn.functional.cross_entropy(model(images), targets)
            if args.how in ("nan", "stop-on-nan") and run.step == 3:
                loss = loss * float("nan")
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    tell(run, model, optimizer)


if __name__ == "__main__":
    main()
