"""What the tests add to each program: torchvision that was built for another torch can be imported, and a gate.

A program that the test resizes while it runs has a gate: each micro-batch of training, on every worker, takes a file
out of the folder that GATE names, and waits while there is none. Without the folder there is no gate.
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


def gated(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Let a loss function wait at the gate, in training only."""

    def measure(outputs: Any, targets: Any) -> Any:
        if torch.is_grad_enabled() and "GATE" in os.environ:
            while not _passes(Path(os.environ["GATE"])):
                time.sleep(0.02)
        return loss(outputs, targets)

    return measure


def _passes(gate: Path) -> bool:
    try:
        for pass_ in gate.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another worker has taken it
                pass_.unlink()
                return True
    except FileNotFoundError:
        return True
    return False
