"""Trains some steps by Legato, by a plain loop or by DistributedDataParallel, and writes down how much memory it had.

The first argument is a JSON object: side (``ours``, ``plain`` or ``ddp``), model, micro_batches (of a step, of all
workers), workers, saves (whether others than Legato write a checkpoint), directory, and rank of ``ddp``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import legato
from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model

_NUM_STEPS = 6
_SAVED_STEP = 3


class Peak:
    """The most memory that this process has had since it was made, in MB.

    Without code of libraries, which the system maps as a process runs it. Memory that workers share counts for each of
    them in equal parts.
    """

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is forgotten
        self._before_kb = _read_kb("status", "RssAnon")

    def read(self) -> float:
        """Return it; call it while all workers of the job live."""
        most_kb = _read_kb("status", "VmHWM") - _read_kb("status", "RssFile") - _read_kb("status", "RssShmem")
        return (most_kb + _read_kb("smaps_rollup", "Pss_Shmem") - self._before_kb) * 1024 / 1e6


def _read_kb(file: str, field: str) -> int:
    lines = Path("/proc/self", file).read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1])


def main() -> None:
    case = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    data = make_data(_NUM_STEPS * case["micro_batches"] * MICRO_BATCH_SIZE)
    if case["side"] == "ours":
        train(case, data)
    else:
        train_otherwise(case, data)


def note(case: dict[str, Any], rank: int, peak: Peak) -> None:
    """Write the findings of a rank."""
    Path(case["directory"], f"{case['side']}-{rank}.json").write_text(json.dumps({"peak_mb": peak.read()}))


def train(case: dict[str, Any], data: Any) -> None:
    """Train as a worker of Legato."""
    run = legato.elastic(
        global_batch_size=case["micro_batches"] * MICRO_BATCH_SIZE,
        micro_batch_size=MICRO_BATCH_SIZE,
        num_threads=1,
    )
    peak = Peak()
    model = make_model(case["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.prepare(model, optimizer)
    for _ in run.epochs(2):
        for inputs, targets in run.batches(data):
            run.backward(cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped and run.step == _NUM_STEPS - 1:
                note(case, run.rank, peak)
                if run.num_workers == 1:
                    sys.exit()
            # In a later step no worker has ended: both have written.
            if run.stepped and run.step == _NUM_STEPS + 2:
                sys.exit()


def train_otherwise(case: dict[str, Any], data: Any) -> None:
    """Train by a plain loop, or by DistributedDataParallel over gloo."""
    num_ranks, rank = case["workers"], case.get("rank", 0)
    if case["side"] == "ddp":
        store = dist.FileStore(str(Path(case["directory"], "rendezvous")), num_ranks)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks)
    peak = Peak()
    model: Any = make_model(case["model"])
    if case["side"] == "ddp":
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    per_rank = case["micro_batches"] // num_ranks
    for step in range(1, _NUM_STEPS):
        for turn in range(per_rank):
            start = ((step * num_ranks + rank) * per_rank + turn) * MICRO_BATCH_SIZE % (len(data) - MICRO_BATCH_SIZE)
            inputs, targets = data[start : start + MICRO_BATCH_SIZE]
            is_last = turn == per_rank - 1
            with contextlib.nullcontext() if is_last or case["side"] != "ddp" else model.no_sync():
                (cross_entropy(model(inputs), targets) / per_rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        if case["saves"] and step == _SAVED_STEP:
            file = Path(case["directory"], "saved.pt")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    note(case, rank, peak)
    if case["side"] == "ddp":
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
