"""The most memory of a worker, beside that of a plain loop or of a rank of DistributedDataParallel.

Both train the same model with Adam, with as many micro-batches for each worker. What counts is what a process has had
above the memory before its model was built, so PyTorch itself does not; memory that workers share counts once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.jobs import PROGRAMS, ROOT, BenchmarkError, Say, run_job, scratch

_MODELS: Final = ("10M", "language-model")
_CASES: Final = ((1, 1, False), (1, 8, False), (1, 1, True), (2, 2, False), (2, 8, False))
"""Number of workers, micro-batches of a step, and whether a checkpoint is written."""
_LIMIT_S: Final = 300.0


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per model, number of workers and number of micro-batches."""
    for model in _MODELS[:1] if quick else _MODELS:
        for workers, micro_batches, saves in _CASES:
            case = {"model": model, "workers": workers, "micro_batches": micro_batches, "saves": saves}
            beside = "plain" if workers == 1 else "ddp"
            with scratch() as directory:
                ours = _measure_ours({**case, "side": "ours", "directory": str(directory)}, directory)
            with scratch() as directory:
                theirs = _measure_theirs({**case, "side": beside, "directory": str(directory)}, directory)
            say(f"{model}, {workers} workers, V={micro_batches}: {ours:.0f} MB each, {beside} {theirs:.0f} MB")
            yield {**case, "beside": beside, "ours_mb": round(ours, 1), "theirs_mb": round(theirs, 1)}


def _measure_ours(case: dict[str, Any], directory: Path) -> float:
    every = "3steps" if case["saves"] else None
    arguments = (json.dumps(case),)
    run_job("memory", arguments, directory, num_workers=case["workers"], checkpoint_every=every, limit_s=_LIMIT_S)
    return _read_mean(case, directory)


def _measure_theirs(case: dict[str, Any], directory: Path) -> float:
    program = (sys.executable, str(PROGRAMS / "memory.py"))
    ranks = [
        subprocess.Popen([*program, json.dumps({**case, "rank": rank})], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for rank in range(case["workers"])
    ]
    for rank in ranks:
        _, told = rank.communicate(timeout=_LIMIT_S)
        if rank.returncode:
            raise BenchmarkError(f"{case['model']}, {case['side']}: {told}")
    return _read_mean(case, directory)


def _read_mean(case: dict[str, Any], directory: Path) -> float:
    files = [directory / f"{case['side']}-{rank}.json" for rank in range(case["workers"])]
    return float(sum(json.loads(file.read_text())["peak_mb"] for file in files) / len(files))
