"""Writes checkpoints from private copies in one thread, while the training continues. Never decides when."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from legato.core.clock import Clock
from legato.train.checkpoints.checkpoint import Store, refuse_unreadable
from legato.train.state.serialization import MAPPINGS

_REST: Final = 3.0
"""Times as long as it has worked, the thread rests, while the training uses the cores and the memory."""


def copy_to_cpu(state: Any, into: Any = None) -> Any:
    """Copy a whole state, with its tensors to the CPU; NumPy scalars become Python numbers.

    Args:
        state: as `refuse_unreadable` allows it.
        into: an earlier copy that is no longer needed. Its tensors are overwritten and used again where dtype, shape
            and strides are the same. None: allocate all tensors.

    Raises:
        CheckpointError: something in the state cannot be put into a checkpoint.
    """
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, torch.Tensor):
        return _copy_tensor(state.detach(), into)
    kind = type(state)
    if kind in MAPPINGS:
        old = into if isinstance(into, dict) else {}
        pairs = [(key, copy_to_cpu(value, old.get(key))) for key, value in state.items()]
        return kind(dict(pairs))
    if kind in (list, tuple):
        olds = into if type(into) is kind and len(into) == len(state) else [None] * len(state)
        return kind(copy_to_cpu(value, old) for value, old in zip(state, olds, strict=True))
    refuse_unreadable(state)
    return set(state) if kind is set else state


def _copy_tensor(tensor: torch.Tensor, into: Any) -> torch.Tensor:
    with torch.no_grad():
        fresh = torch.empty_like(tensor, device="meta")
        if (
            isinstance(into, torch.Tensor)
            and into.dtype == tensor.dtype
            and into.shape == fresh.shape
            and into.stride() == fresh.stride()
        ):
            return into.copy_(tensor)
        return torch.empty_like(tensor, device="cpu").copy_(tensor)


class _Task(NamedTuple):
    state: Any
    step: int
    meta: Mapping[str, Any]


class BackgroundWriter:
    """Writes checkpoints one after the other in a thread that runs as long as there are checkpoints to write.

    While a checkpoint is written, only the newest submitted one waits; an older one that waits is dropped. The thread
    rests again and again, so that no step becomes much longer, for at most half of the time from the last checkpoint to
    this one, and not while a newer one or the program waits for it.

    Args:
        store: where the checkpoints are written.
        on_saved: called in that thread with the step and the path of each checkpoint that was written.
        on_failed: called in that thread with the step and the error (a `CheckpointError` for a full disk and the like).
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        on_saved: Callable[[int, Path], None],
        on_failed: Callable[[int, Exception], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._store = store
        self._on_saved = on_saved
        self._on_failed = on_failed
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waiting: _Task | None = None
        self._spare: Any = None
        self._is_urgent = threading.Event()
        self._submitted_at = -math.inf
        self._interval_s = math.inf

    def spare(self) -> Any:
        """Return an earlier submitted state that is no longer needed, to copy the next one into; or None."""
        with self._lock:
            spare, self._spare = self._spare, None
            return spare

    def submit(self, state: Any, step: int, meta: Mapping[str, Any]) -> None:
        """Start to write a state. Return at once.

        Args:
            state: a private copy (`copy_to_cpu`); the caller must not use it after this call.
            step: as in `Store.save`.
            meta: as in `Store.save`.
        """
        now = self._clock()
        self._interval_s, self._submitted_at = now - self._submitted_at, now
        with self._lock:
            if self._waiting is not None:
                self._spare = self._waiting.state
            self._waiting = _Task(state, step, meta)
            if self._thread is None:
                self._is_urgent.clear()
                # Not a daemon: a program that ends while its last checkpoint is written waits for it.
                self._thread = threading.Thread(target=self._write_all, name="legato-checkpoint")
                self._thread.start()

    def hurry(self) -> None:
        """Do not rest until everything submitted is written."""
        self._is_urgent.set()

    def wait(self) -> None:
        """Wait until everything submitted is written or has failed."""
        self.hurry()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _write_all(self) -> None:
        while True:
            with self._lock:
                task, self._waiting = self._waiting, None
                if task is None:
                    self._thread = None
                    return
            self._write(task)
            with self._lock:
                self._spare = task.state

    def _write(self, task: _Task) -> None:
        try:
            path = self._store.save(task.state, step=task.step, meta=task.meta, rest=self._rest)
        except Exception as error:  # noqa: BLE001 - a checkpoint that fails must not end the training; an event reports it
            self._on_failed(task.step, error)
        else:
            self._on_saved(task.step, path)

    def _rest(self, worked_s: float) -> None:
        # The next copy needs the memory of this one, so it should be written well before that.
        has_time = self._clock() - self._submitted_at < self._interval_s / 2
        # A program that ends waits for this thread without a call.
        if has_time and self._waiting is None and threading.main_thread().is_alive():
            self._is_urgent.wait(_REST * worked_s)
