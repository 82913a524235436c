"""Hugging Face datasets: shuffled rows of a member of a `DatasetDict` in a file, as tensors; and a transform that draws
random numbers for all samples of a micro-batch; evaluation; V = 4.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import datasets
import torch
from common import pace, tell
from torch import nn

import legato


def make(num_samples: int, start: int) -> datasets.Dataset:
    rows = torch.rand(num_samples, 6, generator=torch.Generator().manual_seed(start))
    return datasets.Dataset.from_dict({"row": rows.numpy(), "label": (4 * rows[:, 0]).long().tolist()})


def shift(batch: dict[str, Any]) -> dict[str, Any]:
    rows = torch.tensor(batch["row"])
    return {"row": rows + 0.1 * torch.randn(rows.shape), "label": batch["label"]}


def as_pair(samples: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([sample["row"] for sample in samples]), torch.stack([sample["label"] for sample in samples])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--loaders", type=int, default=0)
    args = parser.parse_args()
    datasets.disable_progress_bars()
    scratch = tempfile.TemporaryDirectory()
    datasets.DatasetDict(train=make(60, 1), test=make(20, 2)).save_to_disk(scratch.name)
    both = datasets.load_from_disk(scratch.name)
    clean = both["train"].shuffle(seed=9).select(range(50)).with_format("torch")
    noisy = both["train"].with_transform(shift)
    run = legato.elastic(global_batch_size=12, micro_batch_size=3, seed=5)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run.prepare(model, optimizer)
    for _ in run.epochs(4):
        for dataset in (clean, noisy):
            for batch in run.batches(dataset, num_workers=args.loaders):
                pace(run)
                run.backward(nn.functional.cross_entropy(model(batch["row"]), batch["label"]))
                optimizer.step()
                optimizer.zero_grad()
        test = both["test"].with_format("torch")
        found = run.evaluate(model, test, lambda outputs, labels: outputs.argmax(1) == labels, collate_fn=as_pair)
        run.log(accuracy=found, loss=run.loss or 0.0)
    tell(run, model, optimizer)


if __name__ == "__main__":
    main()
