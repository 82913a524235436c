"""``python -m tests.gpu [--device cuda|cpu] [--out FILE] [--only TEXT]``: each test of GPUs in a process of its own.

On a machine with many cores some tests run beside one another, because most of their time is that of starting torch.
Shows progress and a summary, and writes one file of results. Ends with 1 if a test failed or could not be run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from benchmarks.gpu import limit_of_part, run_target
from benchmarks.jobs import ROOT, BenchmarkError
from benchmarks.parts import Part

CORES_OF_A_TEST: Final = 3
MOST_AT_ONCE: Final = 5
ALONE: Final = ("its_memory_free",)
"""Parts of the names of tests that measure the memory of the whole GPU."""


def make_parts(device: str) -> list[Part]:
    """Return a part for each test."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--no-header", "--durations=0"]
    command += ["-W", "default", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    command += ["-m", "gpu", "--device", device]
    listed = subprocess.run(
        [*command, "--collect-only", str(ROOT / "tests" / "gpu")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = [line for line in listed.stdout.splitlines() if "::" in line and not line.startswith(" ")]
    if listed.returncode or not names:
        raise BenchmarkError(f"The tests cannot be listed:\n{listed.stdout}{listed.stderr}")
    return [
        Part(
            name.partition("tests/gpu/")[2],
            (*command, str(ROOT / name)),
            limit_of_part(device),
            is_alone=any(each in name for each in ALONE),
        )
        for name in names
    ]


if __name__ == "__main__":
    num_cores = len(os.sched_getaffinity(0))
    at_once = max(1, min(MOST_AT_ONCE, num_cores // CORES_OF_A_TEST))
    sys.exit(run_target("test-gpu", make_parts, sys.argv[1:], num_at_once=at_once))
