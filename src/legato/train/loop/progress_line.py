"""The progress bar of a program that runs alone on a terminal. Elsewhere the lines of ``run.log`` show progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_REDRAW_EVERY_S: Final = 0.1


class ProgressLine:
    """A bar with step, epoch and loss.

    Args:
        num_epochs: number of epochs of the whole training.
        num_steps: number of steps of the whole training.
        console: on which the bar is drawn; None for standard output.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        num_epochs: int,
        num_steps: int,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        console = console or Console()
        self._clock = clock
        self._num_epochs = num_epochs
        self._next = 0.0
        text = TextColumn("epoch {task.fields[epoch]}/{task.fields[num_epochs]}  loss {task.fields[loss]:.4g}")
        # No refresh thread: the line is drawn between steps, while nothing else writes.
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            text,
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=num_steps, epoch=0, num_epochs=num_epochs, loss=float("nan"))

    def show(self, step: int, epoch: int, loss: float) -> None:
        """Update the bar, if the last update is long enough ago."""
        now = self._clock()
        if self._bar.disable or now < self._next:
            return
        self._next = now + _REDRAW_EVERY_S
        self._bar.start()
        self._bar.update(self._task, completed=step, epoch=epoch + 1, loss=loss, refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()
