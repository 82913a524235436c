"""What the programs here share: the reins of the test, and the digest at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(1, str(Path(__file__).parents[1]))

from common import tell
from wmla_reins import declare_torchvision_operators

_REINS = os.environ.get("LEGATO_TEST_REINS")
__all__ = ["declare_torchvision_operators", "paced", "tell_end"]


def paced(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Hold a loss function back as the test wants it: its loaders start in each worker, which takes long."""

    def measure(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if _REINS is not None:
            with contextlib.suppress(FileNotFoundError):
                time.sleep(2 * float(Path(_REINS, "pace").read_text()))
        return loss(outputs, targets)

    return measure


def tell_end(controller: Any, *things: Any) -> None:
    """Print the digest of what was trained."""
    tell(SimpleNamespace(step=controller.global_completed_batch_num), *things)  # type: ignore[arg-type]
