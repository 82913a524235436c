"""Which GPUs this machine offers, found without torch and without starting a driver. Looks only at names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from legato.core.errors import UsageError


def find_devices() -> tuple[str, ...]:
    """Return the torch device names of the GPUs that this process may use; empty if there are none."""
    nodes = [path.name for path in Path("/dev").glob("nvidia*")]
    return decide_devices(nodes, os.environ)


def decide_devices(nodes: list[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the device names for the given names of device files and environment.

    ``CUDA_VISIBLE_DEVICES`` is read as CUDA reads it: the list ends at the first entry that names nothing. CUDA
    numbers what is visible from 0.

    >>> decide_devices(["nvidia0", "nvidia3", "nvidiactl"], {})
    ('cuda:0', 'cuda:1')
    >>> decide_devices(["nvidia0", "nvidia1"], {"CUDA_VISIBLE_DEVICES": "1"})
    ('cuda:0',)
    >>> decide_devices(["nvidia0"], {"CUDA_VISIBLE_DEVICES": ""})
    ()
    """
    num_present = sum(1 for name in nodes if re.fullmatch(r"nvidia\d+", name))
    if num_present == 0:
        return ()
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(f"cuda:{index}" for index in range(num_present))
    num_visible = 0
    for entry in visible.split(","):
        named = entry.strip()
        if not (named.startswith(("GPU-", "MIG-")) or (named.isdecimal() and int(named) < num_present)):
            break
        num_visible += 1
    return tuple(f"cuda:{index}" for index in range(num_visible))


def check_asked_device(devices: tuple[str, ...], asked: str | None) -> None:
    """Raise UsageError if ``LEGATO_DEVICE`` asks for a GPU and there is none: nobody means the CPU by that.

    >>> check_asked_device((), "cpu"), check_asked_device(("cuda:0",), "cuda")
    (None, None)
    """
    if asked and asked.startswith("cuda") and not devices:
        raise UsageError(
            f"Cannot train on LEGATO_DEVICE={asked}: this machine offers no GPU, or CUDA_VISIBLE_DEVICES hides them. "
            "Unset LEGATO_DEVICE to train on the CPU."
        )
