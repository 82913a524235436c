"""Averaging over torchft: a replica group of one worker, which writes down its committed steps.

The first argument is a JSON object: model, directory, number, address, lighthouse, min_workers, limit_s.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torchft  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model


def main() -> None:
    case = json.loads(sys.argv[1])
    limit = datetime.timedelta(seconds=case["limit_s"])
    torch.set_num_threads(1)
    model = make_model(case["model"])
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["optimizer"])

    # Each replica group brings a store of its own; the others meet in that of its quorum's first member.
    store = dist.TCPStore(case["address"], 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    group = torchft.ProcessGroupGloo(timeout=limit)
    manager = torchft.Manager(
        group,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": adam.state_dict()},
        min_replica_size=case["min_workers"],
        timeout=limit,
        rank=0,
        world_size=1,
        store_addr=case["address"],
        store_port=store.port,
        lighthouse_addr=case["lighthouse"],
        replica_id=f"worker-{case['number']}",
        hostname=case["address"],
    )
    optimizer = torchft.Optimizer(manager, adam)
    inputs, targets = make_data(8192).tensors
    path = Path(case["directory"]) / f"worker-{case['number']}.jsonl"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    while True:
        optimizer.zero_grad()
        start = manager.current_step() * MICRO_BATCH_SIZE % (len(inputs) - MICRO_BATCH_SIZE)
        batch = slice(start, start + MICRO_BATCH_SIZE)
        cross_entropy(model(inputs[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = parameters_to_vector(gradients)
        manager.allreduce(flat).wait()
        vector_to_parameters(flat, gradients)
        # A newcomer has its step number only once the quorum is there.
        num_workers = manager.num_participants()
        before = manager.current_step()
        optimizer.step()
        if manager.current_step() > before:
            line = {
                "at": time.monotonic(),
                "step": manager.current_step(),
                "num_workers": num_workers,
                "group_size": group.size(),
                "contributed": manager.is_participating(),
                "pid": os.getpid(),
            }
            os.write(descriptor, json.dumps(line).encode() + b"\n")


main()
