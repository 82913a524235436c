"""Records checksums of a worker's state for ``legato verify``: one line after every step.

Where ``legato verify`` plans a change of the number of workers, the worker also waits until that change is prepared. So
a run of a few fast steps changes its workers at the same steps each time. Without the variable ``LEGATO_VERIFY``, this
module does nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import torch

from legato.core.verification import VARIABLE, Orders, Recorded
from legato.system.decoding import decode
from legato.train.state.checksums import checksums
from legato.train.state.named_state import Item


class Recorder:
    """Writes one worker's checksums after each step.

    Args:
        orders: from ``legato verify``: what to do at which step.
        worker: number of the worker.
        items: returns the state, piece by piece.
        device: on which the job trains.
        wait: waits until a view of the given number of workers is prepared or in force.
    """

    def __init__(
        self,
        orders: Orders,
        worker: int,
        items: Callable[[], Iterable[Item]],
        device: torch.device,
        wait: Callable[[int], None],
    ) -> None:
        self._orders = orders
        self._path = Path(orders.directory, f"worker-{worker}.jsonl")
        self._items = items
        self._device = device
        self._wait = wait
        self._last_step = -1

    @classmethod
    def ordered(
        cls,
        worker: int,
        items: Callable[[], Iterable[Item]],
        device: torch.device,
        wait: Callable[[int], None],
    ) -> Recorder | None:
        """Return a recorder if ``legato verify`` started this process, else None."""
        text = os.environ.get(VARIABLE)
        return None if text is None else cls(decode(text, Orders), worker, items, device, wait)

    def at_boundary(self, step: int, results: dict[str, Any], num_workers: int) -> None:
        """Write the checksums after a step, once per step, and wait if a change of the workers is planned here.

        Args:
            step: number of committed steps of the job.
            results: of the last step, such as its loss, by name.
            num_workers: number of workers in the present view.
        """
        if step == self._last_step:
            return
        self._last_step = step
        # The length of a cache depends on the inputs of this worker; a cache is no part of the state.
        pieces = ((item.name, item.value) for item in self._items() if not item.is_cache)
        sums = {**checksums(results.items(), self._device), **checksums(pieces, self._device)}
        line = msgspec.json.encode(Recorded(step=step, num_workers=num_workers, sums=sums))
        with self._path.open("ab") as file:
            file.write(line + b"\n")
        if step >= self._orders.num_steps:
            # All requested lines are written; the driver ends this process.
            threading.Event().wait()
        if step in self._orders.sizes:
            self._wait(self._orders.sizes[step])
