"""What a checkpoint costs the training: Legato's, written in the background, beside a `torch.save` that blocks.

Both save the same state, in the same training, to the same directory, and take turns. What is measured is the time that
the training loses until the file is written, and the longest step until then, over the longest one of as many steps
without a checkpoint. Without a spare core the writing thread and the training share one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import plain
from benchmarks.jobs import ROOT, BenchmarkError, Say, scratch

TARGET_LONGEST: Final = 1.1
TARGET_LOST: Final = 1.0
_CASES: Final = (("100MB", 2, 10), ("250MB", 2, 6), ("1GB", 2, 4), ("100MB", 1, 10), ("250MB", 1, 6), ("1GB", 1, 4))
_NUM_PLAIN: Final = 5
_LIMIT_S: Final = 900.0


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per size of the state and number of cores."""
    for model, num_cores, num_saves in _CASES[:1] if quick else _CASES:
        with scratch() as directory:
            command = [sys.executable, "-m", "benchmarks.checkpoints", model, str(num_cores), str(num_saves)]
            done = subprocess.run(
                [*command, str(directory)], cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        if done.returncode:
            raise BenchmarkError(f"{model}: {done.stderr}")
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        say(
            f"{model}, {num_cores} cores: the longest step {row['longest']['median']:.2f}, the lost time "
            f"{row['lost_ratio']['median']:.2f} of that of torch.save"
        )
        yield row


def _compare(name: str, num_cores: int, num_saves: int, directory: Path) -> dict[str, Any]:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:num_cores]))
    import torch

    from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model
    from legato.core import wire
    from legato.train.checkpoints.saving import Saver

    torch.set_num_threads(1)
    model = make_model(name)
    optimizer = torch.optim.Adam(model.parameters())
    inputs, targets = make_data(MICRO_BATCH_SIZE)[:]

    def step() -> float:
        begun = time.perf_counter()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - begun

    def read_state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    said: list[wire.Message] = []
    saver = Saver(directory, None, 1, {}, {}, {}, said.append)
    step()
    num_bytes = sum(one.numel() * one.element_size() for one in model.parameters()) * 3

    def save_ours(number: int) -> list[float]:
        """Save, and return the time of each step until the checkpoint is written. The first one contains the call."""
        said.clear()
        begun = time.perf_counter()
        saver.save(read_state, number)
        called_s = time.perf_counter() - begun
        steps_s = [step()]
        while not said:
            steps_s.append(step())
        if not isinstance(said[0], wire.Saved):
            raise BenchmarkError(f"The checkpoint was not written: {said[0]}")
        return [called_s + steps_s[0], *steps_s[1:]]

    def save_theirs(number: int) -> list[float]:
        begun = time.perf_counter()
        file = directory / f"{number}.pt"
        torch.save(read_state(), file)
        with file.open("rb") as written:
            os.fsync(written.fileno())  # as Legato does
        took_s = time.perf_counter() - begun
        file.unlink()
        return [took_s + step()]

    rows = [_measure_pair(step, save_ours, save_theirs, number) for number in range(1, num_saves + 2)][1:]
    return {
        "model": name,
        "state_mb": round(num_bytes / 1e6),
        "cores": num_cores,
        "step_ms": plain([1e3 * row["step_s"] for row in rows]),
        "longest": plain([row["longest"] for row in rows]),
        "lost_s": plain([row["ours_s"] for row in rows]),
        "save_s": plain([row["theirs_s"] for row in rows]),
        "lost_ratio": plain([row["ours_s"] / row["theirs_s"] for row in rows]),
    }


def _measure_pair(
    step: Callable[[], float],
    save_ours: Callable[[int], list[float]],
    save_theirs: Callable[[int], list[float]],
    n: int,
) -> dict[str, float]:
    ours = save_ours(n)
    # As many steps without a checkpoint: among more steps, the longest one is longer, whatever the reason.
    usual = [step() for _ in range(max(len(ours), _NUM_PLAIN))]
    theirs = save_theirs(n)
    plain_s = statistics.median(usual)
    return {
        "step_s": plain_s,
        "longest": max(ours) / max(usual[: len(ours)]),
        "ours_s": sum(ours) - len(ours) * plain_s,
        "theirs_s": sum(theirs) - len(theirs) * plain_s,
    }


if __name__ == "__main__":
    print(json.dumps(_compare(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))))
