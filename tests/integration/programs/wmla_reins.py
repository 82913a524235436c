"""What the programs in `wmla` share: the reins of the test, hung on the loss, and a digest at the end.

They have no run of their own to pace, as programs for WMLA have none.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from common import tell

_REINS = os.environ.get("LEGATO_TEST_REINS")


def paced(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Hold a loss function back as the test wants it, in training only."""

    def measure(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if _REINS is not None and torch.is_grad_enabled():
            with contextlib.suppress(FileNotFoundError):
                time.sleep(float(Path(_REINS, "pace").read_text()) / 4)
        return loss(outputs, targets)

    return measure


def tell_end(num_steps: int, *things: Any) -> None:
    """Print the digest of what was trained."""
    tell(SimpleNamespace(step=num_steps), *things)  # type: ignore[arg-type]


def declare_torchvision_operators() -> None:
    """Let torchvision be imported that was built for another torch; nothing here uses its operators."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):
            library.define(f"{name}(Tensor boxes, Tensor scores, float limit) -> Tensor")
    kept.append(library)


kept: list[Any] = []
