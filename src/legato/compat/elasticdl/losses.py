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
    """Call a function with each loss, shape ``[]`` or of one element, whose backward pass this thread begins inside."""
    original, own = torch.Tensor.backward, threading.get_ident()

    @functools.wraps(original)
    def backward(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.numel() == 1 and threading.get_ident() == own:
            note(float(self.detach()))
        return original(self, *args, **kwargs)  # type: ignore[no-untyped-call]

    torch.Tensor.backward = backward  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.backward = original  # type: ignore[method-assign]
