"""Hears with which losses a program's own backward passes begin. Changes nothing of them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def hearing_losses(note: Callable[[float], None]) -> Iterator[None]:
    """Call a function with each loss, shape ``[]`` or of one element, whose backward pass this thread begins inside.

    A loss that a `torch.amp.GradScaler` has scaled is reported unscaled.
    """
    original, original_scale, own = torch.Tensor.backward, torch.amp.GradScaler.scale, threading.get_ident()
    scaled: list[tuple[torch.Tensor, float]] = []

    @functools.wraps(original_scale)
    def scale(self: torch.amp.GradScaler, outputs: Any) -> Any:
        result = original_scale(self, outputs)
        if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
            scaled.append((result, float(outputs.detach())))
        return result

    @functools.wraps(original)
    def backward(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.numel() == 1 and threading.get_ident() == own:
            told = [loss for known, loss in scaled if known is self]
            note(told[-1] if told else float(self.detach()))
        return original(self, *args, **kwargs)  # type: ignore[no-untyped-call]

    torch.Tensor.backward = backward  # type: ignore[method-assign]
    torch.amp.GradScaler.scale = scale  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.backward = original  # type: ignore[method-assign]
        torch.amp.GradScaler.scale = original_scale  # type: ignore[method-assign]
