"""Lets one worker write what the program logs on every worker: nothing twice and nothing missing, if workers die.

Every worker makes the same calls, and each call has a place: the number of committed steps, and its number after that
step. Rank 0 writes. The others keep the calls of the present step; if rank 0 dies, the next rank 0 finds out which call
was written last, and writes those after it. A job that resumes repeats calls: they are skipped in the same way.
If what is written to fails, training goes on without it. This module never decides what a call writes, and where.
"""

from __future__ import annotations

import re
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
import torch

from legato.train.loop.elastic import Run
from legato.train.loop.trainer import Callback, EpochRecord, History, Trainer
from legato.train.process import job

_MAX_KEPT: Final = 1000
_LOGIN: Final = re.compile(r"(?<=://)[^/\s]*@")

Place: TypeAlias = tuple[int, int]
"""Of a call: the number of committed steps, and the number of the call after that step, from 1."""


class Call(NamedTuple):
    """A call that this worker may have to write.

    Args:
        place: of the call.
        write: writes it.
    """

    place: Place
    write: Callable[[], object]


class SingleWriter(ABC):
    """Base of classes whose methods are called on every worker, and write on one.

    A call takes effect at once if this worker writes. Calls before the first step are written after it: until then no
    worker knows who writes. If the tracker fails, there is a warning, and later calls write nothing.

    Args:
        run: of the program, before training begins.

    Raises:
        ProgramError: training has begun.
    """

    name: ClassVar[str]
    """Of the tracker, for warnings."""
    failures: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """Errors of the tracker, not of the program that calls it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._id = uuid.uuid4().hex
        self._place: Place = (0, 0)
        self._pending: list[Call] = []
        self._written: Place | None = None
        self._writing: Place = (0, 0)
        self._is_open = False
        self._is_lost = False
        self._has_warned = False
        self._has_ended = False
        self._num_workers = 0
        run.prepare(self)
        job.at_end(self._end)

    # ------------------------------------------------------------ for subclasses

    def _call(self, write: Callable[..., object], *arguments: Any, **named: Any) -> None:
        """Make a call: write it here, or keep it in case that the worker that writes dies."""
        step = self._run.step
        if step > 0:
            self._open_if_due()
        if step != self._place[0]:
            if self._place[0] > 0:
                # Rank 0 has taken part in the step since then, so it had written its calls before.
                self._pending.clear()
            self._place = (step, 0)
        self._place = (step, self._place[1] + 1)
        if self._is_open:
            self._do(Call(self._place, lambda: write(*arguments, **named)))
        elif len(self._pending) < _MAX_KEPT:
            arguments, named = _copy(arguments), _copy(named)
            self._pending.append(Call(self._place, lambda: write(*arguments, **named)))
        elif self._run.is_main:
            self._warn_once(
                f"{self.name}: {_MAX_KEPT} calls wait for the next step. The calls after them are not written."
            )

    @abstractmethod
    def _open(self) -> Place | None:
        """Begin to write; returns the place of the last call that another worker, or this job earlier, has written."""

    @abstractmethod
    def _write_resize(self, num_workers: int) -> None:
        """Write that so many workers train now."""

    @abstractmethod
    def _close(self) -> None:
        """End writing: the program has ended."""

    def _leave(self, *, others_go_on: bool) -> None:  # noqa: B027 -- for trackers whose calls wait
        """End what has to end before this worker leaves the job: other workers train on, or the job may resume."""

    def _is_refusal(self, error: Exception) -> bool:  # noqa: ARG002 - for trackers that refuse calls
        """Return whether an error concerns one call, and later calls may work."""
        return False

    @contextmanager
    def _guarded(self, *, is_opening: bool = False) -> Iterator[None]:
        """Warn of an error of the tracker: a training of hours must not end because of it."""
        try:
            yield
        except Exception as error:
            if not self._note_failure(error, is_opening=is_opening):
                raise

    def _note_failure(self, error: BaseException, *, is_opening: bool = False) -> bool:
        """Warn of an error of the tracker; returns False for other errors."""
        if not isinstance(error, Exception if is_opening else self.failures):
            return False
        told = f"{self.name}: {hide_login(f'{type(error).__name__}: {error}')}"
        if not is_opening and self._is_refusal(error):
            self._warn_once(f"{told}. This call, and others like it, are not written.")
        elif not self._is_lost:
            self._is_lost = True
            self._run.warn(f"{told}. Training goes on, but this worker writes nothing there any more.")
        return True

    def _warn_once(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._run.warn(text)

    # ------------------------------------------------------------ who writes

    def _open_if_due(self) -> None:
        # A worker without the job's state takes itself for the main one, and does not know the job's log.
        if not self._is_open and self._run.has_state and self._run.is_main:
            self._is_open = True
            with self._guarded(is_opening=True):
                self._written = self._open()
            pending, self._pending = self._pending, []
            for call in pending:
                self._do(call)

    def _do(self, call: Call) -> None:
        # After this worker has left the job, another one writes.
        if self._is_lost or not self._run.has_state or (self._written is not None and call.place <= self._written):
            return
        self._write_resize_if_due()
        self._make(call)

    def _write_resize_if_due(self) -> None:
        if self._num_workers != self._run.num_workers:
            self._num_workers = self._run.num_workers
            with self._guarded():
                self._write_resize(self._num_workers)

    def _make(self, call: Call) -> None:
        if not self._is_lost:
            with self._guarded():
                self._writing = call.place
                call.write()
                self._written = call.place

    def _end(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if getattr(sys, "last_value", None) is not None:
            # The program has failed.
            return
        if not self._run.has_state:
            # The job goes on without this worker, or later; or this worker has taken no part in it.
            if self._is_open and not self._is_lost:
                with self._guarded():
                    self._leave(others_go_on=not job.is_to_leave())
            return
        self._open_if_due()
        if self._is_open and not self._is_lost:
            with self._guarded():
                self._close()

    # ------------------------------------------------------------ the job's state

    def state_dict(self) -> dict[str, Any]:
        """Return what joining workers and a resumed job need: which log it is, and the place of the last call.

        Workers that load it take all calls up to this place as written, so this worker writes them if it is its turn.
        """
        if self._place[0] > 0:
            self._open_if_due()
        return {"id": self._id, "place": list(self._place)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        self._id = state["id"]
        step, number = state["place"]
        if step > 0:
            # What this program has logged on its way here, the job has logged before.
            self._pending.clear()
            self._place = (step, number)


class MetricsCallback(Callback, ABC):
    """Base of callbacks of `legato.Trainer` that write its losses and metrics."""

    @abstractmethod
    def begin(self, run: Run) -> None:
        """Make the writer."""

    @abstractmethod
    def write(self, values: dict[str, float], step: int) -> None:
        """Write values by name."""

    @abstractmethod
    def end(self) -> None:
        """End writing."""

    def on_train_begin(self, trainer: Trainer) -> None:
        """Make the writer of this run."""
        self.begin(trainer.run)

    def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None:  # noqa: ARG002 -- of the interface
        """Write the loss."""
        self.write({"loss": loss}, step)

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:  # noqa: ARG002 -- of the interface
        """Write the mean loss of the epoch, and the metrics of the validation."""
        metrics = {f"val_{name}": value for name, value in record.metrics.items()}
        self.write({"epoch_loss": record.loss, **metrics}, record.step)

    def on_train_end(self, trainer: Trainer, history: History) -> None:  # noqa: ARG002 -- of the interface
        """End writing."""
        self.end()


def hide_login(text: str) -> str:
    """Leave the user and the password out of the addresses in a text."""
    return _LOGIN.sub("", text)


def _copy(value: Any) -> Any:
    """Copy what the program may change before the call is written."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copy, value))
    return value
