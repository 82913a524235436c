"""What the tests add to each program: torchvision that was built for another torch can be imported, and a pace.

A program that shall be resized under way is held back by the file that PACE names: seconds for each micro-batch.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_kept = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    with contextlib.suppress(RuntimeError):
        _kept.define(f"{_name}(Tensor boxes, Tensor scores, float limit) -> Tensor")


def paced(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Hold a loss function back, in training only."""

    def measure(outputs: Any, targets: Any) -> Any:
        if torch.is_grad_enabled() and "PACE" in os.environ:
            time.sleep(float(Path(os.environ["PACE"]).read_text()))
        return loss(outputs, targets)

    return measure
