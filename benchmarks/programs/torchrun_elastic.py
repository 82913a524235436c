"""DistributedDataParallel under torchrun's elastic launch: writes down its steps, and goes on from its last snapshot.

The first argument is a JSON object: model, directory, and limit_s of an operation of the group, null for the default.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model

_SAVE_EVERY_STEPS = 20


def main() -> None:
    case = json.loads(sys.argv[1])
    directory = Path(case["directory"])
    torch.set_num_threads(1)
    limit = None if case["limit_s"] is None else datetime.timedelta(seconds=case["limit_s"])
    dist.init_process_group("gloo", timeout=limit)
    model = DistributedDataParallel(make_model(case["model"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    snapshot = directory / "snapshot.pt"
    step = 0
    if snapshot.exists():
        saved = torch.load(snapshot, weights_only=True)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    inputs, targets = make_data(8192).tensors
    path = directory / f"worker-{os.environ['BENCHMARK_WORKER']}.jsonl"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    while True:
        start = step * MICRO_BATCH_SIZE % (len(inputs) - MICRO_BATCH_SIZE)
        batch = slice(start, start + MICRO_BATCH_SIZE)
        cross_entropy(model(inputs[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        line = {"at": time.monotonic(), "step": step, "num_workers": dist.get_world_size(), "pid": os.getpid()}
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        if step % _SAVE_EVERY_STEPS == 0 and dist.get_rank() == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, snapshot.with_suffix(".new"))
            snapshot.with_suffix(".new").replace(snapshot)


main()
