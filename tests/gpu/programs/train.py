"""Trains a small network with convolutions, batch-norm, dropout and an embedding, and writes down what came out.

The first argument, or else the file ``case.json``, is a JSON object: directory; mode: ``plain``, ``float16`` (with a
GradScaler), ``bfloat16``, ``compiled``, ``too large`` or ``not deterministic``; epochs; way: ``host`` or ``devices``,
which on the CPU takes the exchange that GPUs would take; num_loaders; checkpoints: a directory to go on from and to
save in, for a run alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import legato

NUM_MICRO_BATCHES, MICRO_BATCH_SIZE, NUM_SAMPLES, NUM_WORDS = 8, 16, 512, 50


class Net(nn.Module):
    """Classifies an image beside some words."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(32)])
        self.words = nn.Embedding(NUM_WORDS, 32)
        self.dropout = nn.Dropout(0.2)
        self.last = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return scores, shape ``[n, 10]``, of images ``[n, 3, 16, 16]`` and words ``[n, 6]``."""
        seen = torch.relu(self.norms[0](self.first(images)))
        seen = torch.relu(self.norms[1](self.second(seen))).mean((2, 3))
        scores: torch.Tensor = self.last(self.dropout(torch.cat([seen, self.words(words).mean(1)], 1)))
        return scores


def main() -> None:
    case = json.loads(sys.argv[1] if len(sys.argv) > 1 else Path("case.json").read_text())
    mode, directory = case["mode"], Path(case["directory"])
    if case.get("way"):
        take_the_way_of_gpus(case["way"])
    run = legato.elastic(
        global_batch_size=NUM_MICRO_BATCHES * MICRO_BATCH_SIZE,
        micro_batch_size=MICRO_BATCH_SIZE,
        seed=3,
        checkpoint_dir=case.get("checkpoints"),
        resume="checkpoints" in case,
    )
    device = run.device
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler(device.type, init_scale=256.0, growth_interval=5, enabled=mode == "float16")
    run.prepare(model, optimizer, scaler)
    compute = torch.compile(model) if mode == "compiled" else model
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(mode)
    data = make_data()
    for _ in run.epochs(case.get("epochs", 4)):
        for batch in run.batches(data, num_workers=case.get("num_loaders", 0), pin_memory=True):
            images, words, targets = (each.to(device, non_blocking=True) for each in batch)
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                loss = cross_entropy(compute(images, words), targets)
            if mode == "too large":
                torch.empty(2**50, dtype=torch.uint8, device=device)
            if mode == "not deterministic":
                loss = loss + nn.functional.avg_pool3d(model.first.weight[None], 1).sum()
            run.backward(loss, scaler if mode == "float16" else None)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    result = {
        "digest": digest_of(model, optimizer),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "num_workers": run.num_workers,
        "peak_mb": round(torch.cuda.max_memory_allocated(device) / 1e6, 1) if device.type == "cuda" else None,
    }
    (directory / f"result-{os.environ.get('LEGATO_WORKER', 'alone')}.json").write_text(json.dumps(result))


def make_data() -> TensorDataset:
    """Return the same images, words and targets in every process."""
    drawn = torch.Generator().manual_seed(0)
    images = torch.randn(NUM_SAMPLES, 3, 16, 16, generator=drawn)
    words = torch.randint(0, NUM_WORDS, (NUM_SAMPLES, 6), generator=drawn)
    return TensorDataset(images, words, torch.randint(0, 10, (NUM_SAMPLES,), generator=drawn))


def digest_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Return the SHA-256 of all numbers of the training."""
    told = hashlib.sha256()
    for tensor in tensors_in([model.state_dict(), optimizer.state_dict()["state"]]):
        told.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return told.hexdigest()


def tensors_in(thing: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested containers in order."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        yield from tensors_in(list(thing.values()))
    elif isinstance(thing, list):
        for part in thing:
            yield from tensors_in(part)


def take_the_way_of_gpus(way: str) -> None:
    """Rehearse on the CPU how the gradients of GPUs travel; gloo stands in for NCCL."""
    from legato.train.membership import connection
    from legato.train.membership.groups import Group
    from legato.train.reduction.buckets import Bucket
    from legato.train.reduction.device_exchange import DeviceExchange, HostExchange
    from legato.train.reduction.exchange import Exchange
    from legato.train.reduction.kept_memory import KeptMemory

    original = connection._make_host_exchange

    def make(
        group: Group, buckets: list[Bucket], num_micro_batches: int, *, exact: bool, kept: KeptMemory | None
    ) -> Exchange:
        if group.size == 1:
            return original(group, buckets, num_micro_batches, exact=exact, kept=kept)
        if way == "devices":
            group.use_devices(group._process_group)
            made = DeviceExchange(group, buckets, num_micro_batches)
            group.use_devices(None)
            return made
        inner = original(group, [bucket.on_host() for bucket in buckets], num_micro_batches, exact=exact, kept=kept)
        return HostExchange(buckets, inner.division.max_pending(group.rank), inner)

    connection._make_host_exchange = make  # type: ignore[assignment]


main()
