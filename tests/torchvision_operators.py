"""Lets torchvision be imported that was built for another torch than the one here, as libraries import it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

_kept: list[Any] = []


def make_torchvision_importable() -> None:
    """Import torchvision; if its operators are missing, declare those that it names then."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _kept.append(torch.library.Library("torchvision", "FRAGMENT"))
        for name in ("nms", "qnms"):
            _kept[0].define(f"{name}(Tensor boxes, Tensor scores, float limit) -> Tensor")
        importlib.import_module("torchvision")
