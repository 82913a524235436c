"""A loop with Lightning's Fabric: batch-norm, dropout, augmentation, clipping, a scheduler, an evaluation; V = 5."""

from __future__ import annotations

import argparse
from typing import Any

import lightning_imports  # noqa: F401 - before the libraries
import lightning
import torch
from common import Images, pace, tell
from lightning.fabric.plugins import MixedPrecision
from torch.utils.data import DataLoader

from legato.integrations.lightning import LegatoFabricStrategy


class Found:
    """What the evaluations have found, a part of the job's state."""

    def __init__(self) -> None:
        self.lines: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"lines": self.lines}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.lines = list(state["lines"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--range", action="store_true")
    parser.add_argument("--float16", action="store_true")
    args = parser.parse_args()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    fabric = lightning.Fabric(
        accelerator="cpu",
        strategy=LegatoFabricStrategy(global_batch_size=15, micro_batch_size=3, seed=4),
        plugins=MixedPrecision("16-mixed", "cpu", scaler) if args.float16 else None,
    )
    fabric.launch()
    run = fabric.strategy.run
    plain = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(64, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(16, 4),
    )
    bare = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(bare, 48 if args.range else 18)
    model, optimizer, scheduler = fabric.setup(plain, bare, scheduler=cosine)
    training, validation = fabric.setup_dataloaders(
        DataLoader(Images(86, augment=True), batch_size=15, shuffle=True), DataLoader(Images(20, start=8), batch_size=8)
    )
    found = run.prepare(Found())
    # Where `run.epochs` does not say how many steps there are, the plan of a test expects about 40.
    for _ in range(8) if args.range else run.epochs(3):
        model.train()
        for inputs, targets in training:
            pace(run)
            fabric.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
            fabric.clip_gradients(model, optimizer, max_norm=0.5)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(inputs).argmax(1) == targets).sum() for inputs, targets in validation)
        # Before a worker that joins has the state, it has no line of an epoch that is over.
        if run.has_state:
            found.lines.append(float(fabric.all_reduce(right, reduce_op="sum")))
    tell(run, plain, bare, scheduler, found)


if __name__ == "__main__":
    main()
