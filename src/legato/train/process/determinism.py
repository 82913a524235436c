"""torch's settings without which a run computes other bits each time; for runs with the exact reduction.

Several kernels of a GPU add in the order in which its threads finish, and cuDNN and torch.compile choose kernels by
measured time. With these settings torch takes a kernel that always gives the same bits, or raises an error where it has
none. On the CPU only some kernels for several threads add in the order in which the threads finish, such as that of the
gradient of ``weight[indices]``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import torch

_WORKSPACE: Final = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC_WORKSPACES: Final = (":4096:8", ":16:8")
_REMEDY: Final = "so the result may differ between runs"


def make_deterministic(device: torch.device) -> None:
    """Choose deterministic kernels, before the program uses the device. A program may change the settings after that.

    What the program has set before is kept: ``torch.use_deterministic_algorithms(True, warn_only=True)``, and a
    ``CUBLAS_WORKSPACE_CONFIG``.
    """
    if device.type != "cuda":
        if device.type == "cpu" and torch.get_num_threads() > 1 and not torch.are_deterministic_algorithms_enabled():
            # Without errors: on the CPU torch also refuses operations that are deterministic, such as `max_unpool2d`.
            _use_deterministic_algorithms(warn_only=True)
        return
    # cuBLAS reads it when it is first used.
    os.environ.setdefault(_WORKSPACE, _DETERMINISTIC_WORKSPACES[0])
    torch.backends.cudnn.benchmark = False
    if not torch.are_deterministic_algorithms_enabled():
        # For torch.compile as well.
        _use_deterministic_algorithms(warn_only=False)


def find_doubts(device: torch.device) -> Iterator[str]:
    """Yield for each present setting that can make results of a GPU differ what it is and what to do, in a sentence."""
    if device.type != "cuda":
        return
    if not torch.are_deterministic_algorithms_enabled():
        yield (
            f"The program has switched off deterministic operations of the GPU, {_REMEDY}. Leave out "
            "torch.use_deterministic_algorithms(False)."
        )
    elif torch.is_deterministic_algorithms_warn_only_enabled():
        yield (
            f"The program lets torch only warn of operations that are not deterministic, {_REMEDY}. Leave out "
            "warn_only=True; torch then names these operations in an error."
        )
    if torch.backends.cudnn.benchmark:
        yield (
            f"cuDNN chooses its kernels by measured time, {_REMEDY}. Leave out torch.backends.cudnn.benchmark = True."
        )
    if os.environ.get(_WORKSPACE) not in _DETERMINISTIC_WORKSPACES:
        yield f"{_WORKSPACE}={os.environ.get(_WORKSPACE, '')}: cuBLAS is not deterministic, {_REMEDY}. Unset it."


def _use_deterministic_algorithms(*, warn_only: bool) -> None:
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    # Only a program that reads memory before it writes there needs it, and it takes a kernel for each allocation.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
