"""What a reader must know of the GPUs of a run. Asked in a process of its own: this one must not hold a GPU."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.jobs import ROOT
from benchmarks.provenance import provenance

_LIMIT_S: Final = 120.0
_ASK: Final = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({
    "cuda": torch.version.cuda,
    "cudnn": torch.backends.cudnn.version() if cuda else None,
    "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda and torch.distributed.is_nccl_available() else None,
    "gpus": [
        {
            "name": torch.cuda.get_device_name(i),
            "memory_gb": round(torch.cuda.get_device_properties(i).total_memory / 1e9, 1),
            "multiprocessors": torch.cuda.get_device_properties(i).multi_processor_count,
        }
        for i in range(torch.cuda.device_count() if cuda else 0)
    ],
}))
"""


def gpu_provenance(device: str, *, quick: bool) -> dict[str, Any]:
    """Return the provenance of a run on a device, ``cpu`` or ``cuda``."""
    known = provenance(quick=quick)
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, check=True, timeout=_LIMIT_S
    ).stdout
    gpus = json.loads(asked.splitlines()[-1])
    backend = "NCCL, or gloo where workers share a GPU" if device == "cuda" else "gloo"
    return {**known, "device": device, "backend": backend, **gpus, "driver": _driver(), "sources": _digest()}


def describe(known: dict[str, Any]) -> str:
    """Return the provenance in some lines for people."""
    gpus = ", ".join(f"{gpu['name']} ({gpu['memory_gb']:g} GB)" for gpu in known["gpus"]) or "no GPU"
    return (
        f"{known['date']}, commit {known['commit']}{' with changes' if known['changed'] else ''}, sources "
        f"{known['sources']}\nran on {known['device']}; {gpus}; driver {known['driver'] or '-'}, CUDA "
        f"{known['cuda'] or '-'}, cuDNN {known['cudnn'] or '-'}, NCCL {known['nccl'] or '-'}\n"
        f"torch {known['torch']}, Python {known['python']}, {known['cores']} cores ({known['processor']})"
    )


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIMIT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return shown.splitlines()[0].strip() if shown.strip() else ""


def _digest() -> str:
    """Return a digest of the sources: a copy of the repository may have no history, and so no commit."""
    files = sorted(path for folder in ("src", "benchmarks", "tests/gpu") for path in (ROOT / folder).rglob("*.py"))
    told = hashlib.sha256()
    for path in files:
        told.update(f"{Path(path).relative_to(ROOT)}\n".encode() + path.read_bytes())
    return told.hexdigest()[:12]
