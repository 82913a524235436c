"""The loader: gives this worker its micro-batches in the order in which it will train them, loaded ahead.

Never decides which worker trains what: it receives the keys, and new ones at every change of membership. It keeps the
batches that are loaded or being loaded, if the new keys soon ask for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch.utils.data import Dataset

from legato.core.errors import DataError
from legato.train import torch_private
from legato.train.data.fetch import Collate, Fetcher, FetchError, render_failure
from legato.train.data.loader_processes import Failure, LoaderProcesses
from legato.train.data.order import Key, Order
from legato.train.data.overlap import Overlap, StrictSigner
from legato.train.data.placing import to_device


def no_fds() -> tuple[int, ...]:
    """Return no file descriptors."""
    return ()


class Loader:
    """Loads the micro-batches of the given keys. For use by one thread.

    Batches do not depend on ``num_workers``, on ``prefetch_factor`` or on the process that loads them. Loading in this
    process sets its random generators, so seed them before the program draws again. There are no loading threads: all
    threads of a process share its random generators, so a thread could not give a micro-batch its own random numbers.

    Args:
        dataset: map-style; may change between two passes, see `begin_pass`.
        order: which samples a key means.
        seed: of the job.
        collate_fn: makes a batch from a list of samples; None for torch's default.
        num_workers: number of loader processes; 0: load in this process, when `take` asks for the batch.
        prefetch_factor: number of micro-batches that each loader process loads ahead.
        multiprocessing_context: a start method or a context; None for the platform's default.
        pin_memory: put batches in page-locked memory; without CUDA this does nothing.
        device: to which batches are moved; None or the CPU: they stay as they are.
        private_fds: called when the processes are forked; returns the file descriptors that they must not hold open.
        overlap: with ``num_workers=0``: decides whether one process loads ahead after all. The loader ends this process
            if the data set changes during a pass or the process fails, and then loads here.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        order: Order,
        *,
        seed: int,
        collate_fn: Collate | None = None,
        num_workers: int = 0,
        prefetch_factor: int = 2,
        multiprocessing_context: str | BaseContext | None = None,
        pin_memory: bool = False,
        device: torch.device | None = None,
        private_fds: Callable[[], Iterable[int]] = no_fds,
        overlap: Overlap | None = None,
    ) -> None:
        if num_workers < 0:
            raise DataError(
                f"Cannot load data: num_workers={num_workers} is negative. Take 0 for loading in this process."
            )
        if prefetch_factor < 1:
            raise DataError(f"Cannot load data: prefetch_factor={prefetch_factor} is below 1. Take 1 or more.")
        self._order = order
        self._fetcher = Fetcher(dataset, order, seed, collate_fn)
        self._pin = pin_memory and torch.cuda.is_available()
        self._device = None if device is None or device.type == "cpu" else device
        self._keys: Iterator[Key] = iter(())
        self._processes = (
            LoaderProcesses(self._fetcher, num_workers, multiprocessing_context, private_fds) if num_workers else None
        )
        self._num_processes = num_workers
        self._window = (num_workers or 1) * prefetch_factor
        self._private_fds = private_fds
        self._overlap = overlap
        self._upcoming: deque[Key] = deque()
        self._loaded: dict[Key, Any] = {}

    @property
    def loads(self) -> bool:
        """True: `take` waits for data."""
        return True

    @property
    def num_processes(self) -> int | None:
        """The number of loader processes for which the program has asked; None: ``overlap`` decides."""
        return None if self._overlap is not None else self._num_processes

    def begin_pass(self) -> bool:
        """Find what the program has changed in the data set since the last pass; all workers call it at one place.

        Loader processes with an older copy end; new ones start with a copy of the data set as it is then.

        Returns:
            Whether the data set may have changed. True without loader processes: then this is not checked.
        """
        if self._overlap is not None:
            self._overlap.begin_pass()
        if self._processes is None:
            self._fetcher.look_again()
            return True
        if not self._processes.renew_if_changed():
            return False
        self._fetcher.look_again()
        self._loaded.clear()
        return True

    def follow(self, keys: Iterator[Key]) -> None:
        """Set the keys that `take` will return from now on, in this order.

        With loader processes this starts to load the first of them. Batches that are loaded or being loaded are kept if
        they are among the next ``num_workers * prefetch_factor`` keys, and dropped otherwise.

        Args:
            keys: read lazily, that many keys ahead of `take`; may be endless.
        """
        self._keys = keys
        if self._processes is None:
            return
        self._upcoming = deque(islice(keys, self._window))
        wanted = set(self._upcoming)
        self._loaded = {key: batch for key, batch in self._loaded.items() if key in wanted}
        try:
            self._processes.forget_all_but(wanted)
            self._request()
        except DataError as error:
            if self._overlap is None:
                raise
            self._end_overlap(self._overlap, str(error))

    def take(self) -> tuple[Key, Any]:
        """Wait for the batch of the next key.

        Raises:
            DataError: a sample or the collation failed (the error is the cause), or a loader process died. After a
                failed sample or collation the next call continues with the next key.
            StopIteration: no keys are left.
        """
        if self._overlap is not None:
            key, batch = self._take_overlapped(self._overlap)
        elif self._processes is None:
            key, batch = self._take_here()
        else:
            key, batch = self._take_loaded(self._processes)
        if self._pin:
            batch = torch_private.pin(batch)
        # Memory that the program has pinned itself may be filled again at once.
        return key, batch if self._device is None else to_device(batch, self._device, non_blocking=self._pin)

    def close(self) -> None:
        """End the loader processes and drop the loaded batches. Idempotent; the loader cannot be used after this."""
        self._keys = iter(())
        self._upcoming.clear()
        self._loaded.clear()
        if self._processes is not None:
            self._processes.close()

    def _take_here(self) -> tuple[Key, Any]:
        key = next(self._keys)
        try:
            return key, self._fetcher(key)
        except FetchError as failed:
            raise self._error(key, str(failed), failed.advice) from failed.__cause__

    def _take_overlapped(self, overlap: Overlap) -> tuple[Key, Any]:
        if self._processes is not None:
            upcoming = tuple(self._upcoming)
            why = overlap.find_reason_to_end(self._processes.state)
            if why is not None:
                self._end_overlap(overlap, why)
            else:
                try:
                    return self._take_loaded(self._processes)
                except DataError as error:
                    # The error may come from the copy alone. If not, it is raised again here.
                    self._upcoming = deque(dict.fromkeys((*upcoming, *self._upcoming)))
                    self._end_overlap(overlap, str(error))
        overlap.begin_load()
        key, batch = self._take_here()
        if overlap.end_load(batch):
            self._processes = LoaderProcesses(self._fetcher, 1, "fork", self._private_fds, StrictSigner)
            self.follow(self._keys)
        return key, batch

    def _end_overlap(self, overlap: Overlap, why: str) -> None:
        assert self._processes is not None
        self._processes.close()
        self._processes = None
        self._keys = chain(tuple(self._upcoming), self._keys)
        self._upcoming.clear()
        self._loaded.clear()
        overlap.give_up(why)

    def _take_loaded(self, processes: LoaderProcesses) -> tuple[Key, Any]:
        if not self._upcoming:
            raise StopIteration
        key = self._upcoming[0]
        # Also if the batch is here already: a process that has delivered a batch gets new work at once.
        self._loaded.update(processes.receive(wait=False))
        while key not in self._loaded:
            self._request()
            self._loaded.update(processes.receive(wait=True))
        self._upcoming.popleft()
        batch = self._loaded.pop(key)
        self._upcoming.extend(islice(self._keys, 1))
        self._request()
        if isinstance(batch, Failure):
            raise self._error(key, batch.what, batch.advice) from batch.cause()
        return key, batch

    def _request(self) -> None:
        assert self._processes is not None
        for key in self._upcoming:
            if key not in self._loaded and not self._processes.is_loading(key):
                self._processes.request(key)

    def _error(self, key: Key, what: str, advice: str = "") -> DataError:
        return DataError(render_failure(key, self._order.samples(key), what, advice))
