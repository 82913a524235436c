"""What the agreement check costs: summing up a worker's whole state, beside one step of the same training.

Steps and checks take turns in one process, so that whatever else the machine does falls on both. A worker makes three
checks per change of the workers and one per checkpoint. The comparison itself travels in the messages of a step.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.figures import plain
from benchmarks.jobs import ROOT, BenchmarkError, Say

# One check per checkpoint, and three per change of the workers.
STEPS_PER_CHECKPOINT: Final = 100
STEPS_PER_CHANGE: Final = 1000
_CASES: Final = {"100k": (40, 25), "10M": (20, 2), "250MB": (10, 2)}
_LIMIT_S: Final = 600.0


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per model."""
    import subprocess

    for model, (blocks, steps_per_block) in _CASES.items():
        command = [
            sys.executable,
            "-m",
            "benchmarks.agreement",
            model,
            str(4 if quick else blocks),
            str(steps_per_block),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        if done.returncode:
            raise BenchmarkError(f"{model}: {done.stderr}")
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        say(f"{model:>5}: a check takes {row['ratio']['median']:.2f} of a step's time, {row['gb_per_s']:.1f} GB/s")
        yield row


def share_of(ratio: float) -> float:
    """Return the share of the training's time that checks take, where one takes ``ratio`` of a step's time."""
    return ratio * (1 / STEPS_PER_CHECKPOINT + 3 / STEPS_PER_CHANGE)


def _compare(name: str, blocks: int, steps_per_block: int) -> dict[str, Any]:
    import torch

    import legato
    from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model

    run = legato.elastic(global_batch_size=MICRO_BATCH_SIZE, micro_batch_size=MICRO_BATCH_SIZE, num_threads=1)
    model = make_model(name)
    optimizer = torch.optim.Adam(model.parameters())
    run.prepare(model, optimizer)
    agreement = run._session.agreement
    batches = run.batches(make_data((blocks + 1) * steps_per_block * MICRO_BATCH_SIZE))
    step_s, check_s = [], []
    begun = time.perf_counter()
    for num_steps, (inputs, targets) in enumerate(batches, 1):
        run.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        if num_steps % steps_per_block == 0:
            ended = time.perf_counter()
            agreement.sum_up(num_steps)
            step_s.append((ended - begun) / steps_per_block)
            check_s.append(time.perf_counter() - ended)
            begun = time.perf_counter()
    num_bytes = sum(
        item.value.numel() * item.value.element_size()
        for item in run._session.training_state.items()
        if isinstance(item.value, torch.Tensor)
    )
    # The first block warms up.
    pairs = list(zip(check_s, step_s, strict=True))[1:]
    return {
        "model": name,
        "state_mb": round(num_bytes / 1e6, 1),
        "ratio": plain([check / step for check, step in pairs]),
        "step_ms": plain([1e3 * step for _, step in pairs]),
        "check_ms": plain([1e3 * check for check, _ in pairs]),
        "gb_per_s": round(num_bytes / 1e9 / sorted(check for check, _ in pairs)[len(pairs) // 2], 2),
    }


if __name__ == "__main__":
    print(json.dumps(_compare(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
