"""Where and when a measurement was made. Names no host and no path."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from benchmarks.jobs import ROOT


def provenance(*, quick: bool) -> dict[str, Any]:
    """Return what a reader must know to judge a figure."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short=12", "HEAD") or "unknown",
        "changed": bool(_git("status", "--porcelain", "--", "src", "benchmarks/*.py", "benchmarks/programs")),
        "settings": "quick" if quick else "full",
        "cores": os.cpu_count(),
        "processor": _after_colon("/proc/cpuinfo", "model name"),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": "cpu",
        "backend": "gloo",
        "threads_per_worker": 1,
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _after_colon(path: str, key: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), platform.processor())
