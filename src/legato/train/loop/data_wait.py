"""Measures which part of a step a worker waits for data, and advises loader processes if it waits long.

A step is measured from the commit of the one before to its own commit, so it includes what the program does between
steps. The first step of a pass and the first one in a view are left out: the program and Legato do other things then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Final

from legato.core.wire import DATA_ADVICE, NOTABLE_WAIT

NUM_COLD: Final = 10
NUM_JUDGED: Final = 20
"""Steps at least that are judged together."""
MIN_JUDGED_S: Final = 5.0
_MAX_ADVISED: Final = 8


class DataWait:
    """Adds up the seconds of steps, and those in which this worker waited for data.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._loading_s = 0.0
        self._committed_at: float | None = None
        self._view = -1
        self._num_steps = 0
        self._steps_s = self._waited_s = 0.0
        self._has_waited = self._has_advised = False

    def begin_pass(self) -> None:
        """Leave out the time since the last step."""
        self._committed_at = None

    def add_load(self, seconds: float) -> None:
        """Note how long the worker has waited for a batch."""
        self._loading_s += seconds

    def end_step(self, view: int) -> tuple[float, float]:
        """Note the commit of a step in a view.

        Returns:
            The seconds of the step, and how many of these the worker waited for data; 0 and 0: it is not measured.
        """
        now, before = self._clock(), self._committed_at
        waited_s, self._loading_s = self._loading_s, 0.0
        is_same, self._view, self._committed_at = view == self._view, view, now
        if before is None or not is_same:
            return 0.0, 0.0
        self._num_steps += 1
        if self._num_steps > NUM_COLD:
            self._steps_s += now - before
            self._waited_s += waited_s
        return now - before, waited_s

    @property
    def is_due(self) -> bool:
        """Whether enough steps were measured to be judged by `advise`."""
        has_enough = self._num_steps >= NUM_COLD + NUM_JUDGED and self._steps_s >= MIN_JUDGED_S
        return has_enough and not self._has_advised

    def advise(self, num_processes: int, num_workers: int, num_spare: int) -> str | None:
        """Return once what the user should know: when much of the measured steps is waiting twice in a row.

        The first steps may wait for files that the system does not have in its memory yet.

        Args:
            num_processes: loader processes of this worker; 0: it loads each batch itself.
            num_workers: on this machine.
            num_spare: cores of this machine that the workers do not use.
        """
        if not self.is_due:
            return None
        num_steps, steps_s, waited_s = self._num_steps - NUM_COLD, self._steps_s, self._waited_s
        self._num_steps, self._steps_s, self._waited_s = NUM_COLD, 0.0, 0.0
        had_waited, self._has_waited = self._has_waited, waited_s >= NOTABLE_WAIT * steps_s
        if not (had_waited and self._has_waited):
            return None
        self._has_advised = True
        # So many processes load a step while the step before is computed.
        loading_s = num_processes * steps_s if num_processes else waited_s
        wanted = min(math.ceil(loading_s / max(steps_s - waited_s, 1e-9)), num_processes + _MAX_ADVISED)
        advised = max(min(wanted, num_spare // num_workers), num_processes + 1)
        present = (
            f"{_count(num_processes)} load{'s' * (num_processes == 1)} ahead"
            if num_processes
            else "the worker loads each batch itself when its loop asks for it"
        )
        told = (
            f"{DATA_ADVICE} {waited_s / steps_s:.0%} of the time of a step ({_render_ms(waited_s / num_steps)} of "
            f"{_render_ms(steps_s / num_steps)}): {present}. num_workers={advised} of run.batches lets "
            f"{_count(advised)} load ahead (num_loader_workers of legato.Trainer, dataloader_num_workers of "
            "transformers). "
        )
        if num_workers * advised > num_spare:
            told += "Every core here has its work then, so it helps only if loading waits for a disk or a network. "
        return f"{told}The result stays the same, unless the program changes the data set within a pass."


def _count(num_processes: int) -> str:
    return f"{num_processes} loader process{'es' * (num_processes != 1)}"


def _render_ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
