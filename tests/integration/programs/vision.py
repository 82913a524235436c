"""Batch-norm, dropout, Adam, clipping, a schedule per epoch, augmentation, loader processes, a collate of its own,
evaluation in the middle of an epoch and at its end, a small last batch; V = 8.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common import Images, mark, pace, pace_evaluation, tell
from torch import nn

import legato


def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    images, targets = zip(*samples, strict=True)
    return torch.stack(images) - 0.5, torch.tensor(targets)


def count_correct(outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    pace_evaluation()
    return {
        "accuracy": (outputs.argmax(1) == targets).float(),
        "loss": nn.functional.cross_entropy(outputs, targets, reduction="none"),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--loaders", type=int, default=0)
    parser.add_argument("--only-after", type=int, default=0, help="epochs without evaluation")
    parser.add_argument("--dim", action="store_true", help="change the data set in each epoch")
    parser.add_argument("--checkpoint-dir")
    args = parser.parse_args()
    run = legato.elastic(global_batch_size=16, micro_batch_size=2, seed=1, checkpoint_dir=args.checkpoint_dir)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 16),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Linear(16, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
    run.prepare(model, optimizer, schedule)
    train, test = Images(53, augment=True), Images(21, start=8)

    def evaluate(place: str) -> None:
        if run.epoch < args.only_after:
            return
        mark(f"{place}-{run.epoch}")
        found: Any = run.evaluate(model, test, count_correct)
        run.log(**found)

    for epoch in run.epochs(args.epochs):
        if args.dim:
            train.brightness = 1 / (1 + epoch)
        for images, targets in run.batches(train, collate_fn=collate, num_workers=args.loaders):
            pace(run)
            loss = nn.functional.cross_entropy(model(images), targets)
            run.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped and run.step % 4 == 2:
                evaluate("middle")
        schedule.step()
        evaluate("end")
    tell(run, model, optimizer, schedule)


if __name__ == "__main__":
    main()
