"""What a worker records for ``legato verify``: checksums of its state after every step, one line each.

It also makes the worker wait, where a change of the number of workers is planned, until that change is prepared. So a
run of a few fast steps meets its changes at the same steps each time. Without the variable ``LEGATO_VERIFY``, nothing
of this happens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from legato.core.verification import VARIABLE, Orders, Recorded
from legato.system.decoding import decode
from legato.train.state.checksums import checksums
from legato.train.state.named_state import Item


class Recorder:
    """Writes down one worker's state after each step.

    Args:
        orders: what to do at which step.
        worker: its number.
        items: gives the state, piece by piece.
        wait: waits until a view of so many workers is prepared or in force.
    """

    def __init__(
        self, orders: Orders, worker: int, items: Callable[[], Iterable[Item]], wait: Callable[[int], None]
    ) -> None:
        self._orders = orders
        self._path = Path(orders.directory, f"worker-{worker}.jsonl")
        self._items = items
        self._wait = wait
        self._last_step = -1

    @classmethod
    def ordered(cls, worker: int, items: Callable[[], Iterable[Item]], wait: Callable[[int], None]) -> Recorder | None:
        """Return a recorder if this process is to be verified, else None."""
        text = os.environ.get(VARIABLE)
        return None if text is None else cls(decode(text, Orders), worker, items, wait)

    def at_boundary(self, step: int, results: dict[str, Any], num_workers: int) -> None:
        """Write down what holds after a step, once, and wait if a change is planned here.

        Args:
            step: committed steps of the job.
            results: of the last step, such as its loss.
            num_workers: in the present view.
        """
        if step == self._last_step:
            return
        self._last_step = step
        # A cache is as long as the inputs of this worker, and no part of the state.
        pieces = ((item.name, item.value) for item in self._items() if not item.is_cache)
        sums = {**checksums(results.items()), **checksums(pieces)}
        line = msgspec.json.encode(Recorded(step=step, num_workers=num_workers, sums=sums))
        with self._path.open("ab") as file:
            file.write(line + b"\n")
        if step >= self._orders.num_steps:
            # All that was asked for is written; the driver ends this process.
            threading.Event().wait()
        if step in self._orders.sizes:
            self._wait(self._orders.sizes[step])
