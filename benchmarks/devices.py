"""What a measured program must do on a GPU and not on a CPU."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch


def read_clock(device: torch.device) -> float:
    """Return the time in seconds when a device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def make_autocast(case: Mapping[str, Any], device: torch.device) -> Callable[[], torch.autocast]:
    """Return what makes the context of a forward pass in a case's ``precision``; ``float32`` is the default."""
    name = case.get("precision", "float32")
    dtype = None if name == "float32" else getattr(torch, name)
    return lambda: torch.autocast(device.type, dtype, enabled=dtype is not None)


def peak_mb(device: torch.device) -> float:
    """Return the most memory that this process had at one time: its tensors on a GPU; on a CPU the whole process."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)
