"""Blocks of steps with the exchange beside the backward pass, and blocks with the exchange after it, in turn.

The first argument is a JSON object: model, workers, micro_batches_per_worker, blocks, steps_per_block, directory,
precision.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import legato
from benchmarks.devices import make_autocast, peak_mb, read_clock
from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model
from legato.train.reduction.reducer import StepReducer


def main() -> None:
    case = json.loads(sys.argv[1])
    num_steps = case["steps_per_block"]
    num_micro_batches = case["workers"] * case["micro_batches_per_worker"]
    run = legato.elastic(global_batch_size=num_micro_batches * MICRO_BATCH_SIZE, micro_batch_size=MICRO_BATCH_SIZE)
    autocast = make_autocast(case, run.device)
    model = make_model(case["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.prepare(model, optimizer)
    hand_over = StepReducer._hand_over
    sides: dict[str, list[float]] = {"beside": [], "after": []}
    side, num_done, began = "beside", 0, read_clock(run.device)
    for _ in run.epochs(1_000_000):
        for inputs, targets in run.batches(make_data(8192)):
            with autocast():
                loss = cross_entropy(model(inputs.to(run.device)), targets.to(run.device))
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            num_done += run.stepped
            if num_done < num_steps or not run.stepped:
                continue
            sides[side].append((read_clock(run.device) - began) / num_steps)
            if len(sides["after"]) > case["blocks"]:
                found = {name: times[1:] for name, times in sides.items()}
                known = {**found, "num_buckets": len(run._session.reducer.buckets), "peak_mb": peak_mb(run.device)}
                Path(case["directory"], f"rank-{run.rank}.json").write_text(json.dumps(known))
                sys.exit()
            # All ranks do this after the same step. A bucket that is not handed over is summed after the backward pass.
            side = "after" if side == "beside" else "beside"
            StepReducer._hand_over = hand_over if side == "beside" else lambda _self, _bucket: None  # type: ignore[method-assign]
            num_done, began = 0, read_clock(run.device)


main()
