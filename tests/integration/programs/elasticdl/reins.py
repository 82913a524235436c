"""What the programs here share: the reins of the test, a ledger of records, the digest at the end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(1, str(Path(__file__).parents[1]))

from common import tell
from wmla_reins import declare_torchvision_operators, paced

__all__ = ["declare_torchvision_operators", "note_records", "paced", "tell_end"]


def tell_end(controller: Any, *things: Any) -> None:
    """Print the digest of what was trained."""
    tell(SimpleNamespace(step=controller.global_completed_batch_num), *things)  # type: ignore[arg-type]


def note_records(targets: torch.Tensor) -> None:
    """Write down which records a call of the training function has."""
    directory = os.environ.get("ELASTICDL_TEST_LEDGER")
    if directory:
        with Path(directory, f"{os.environ.get('LEGATO_WORKER', '0')}").open("a") as ledger:
            ledger.write(" ".join(str(int(number)) for number in targets) + "\n")
