"""Checks on a `DataLoader` of a service's records, and facts about its batches.

Its batches have the size of the service's batches. Its processes start before this worker joins, so that no worker
waits for their start, and they end with this worker.
"""

from __future__ import annotations

import ctypes
import functools
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final, Protocol

from torch.utils.data import DataLoader, IterableDataset

from legato.compat.elasticdl.batches import cut_batch
from legato.compat.elasticdl.record_sources import LoaderPass
from legato.core.errors import ProgramError
from legato.train import torch_private

_PR_SET_PDEATHSIG: Final = 1
_MAX_DEPTH: Final = 3
_PLAIN: Final = (str, bytes, int, float, bool, type(None))


class Loaded(Protocol):
    """The interface of a service for loaders."""

    batch_size: int

    @property
    def is_planned(self) -> bool:
        """Whether a controller trains these records."""

    def begin_loading(self, num_processes: int, *, is_ordered: bool) -> LoaderPass | None:
        """Begin a pass of a loader, before its processes are started.

        Args:
            num_processes: number of the loader's processes.
            is_ordered: its batches are those of the service, in their order.

        Returns:
            The object that tracks its batches; None if that is not needed.
        """

    def end_beginning(self) -> None:
        """Record that the loader's processes are started."""


def find_service(dataset: Any, kind: type[Any], depth: int = 0) -> Any:
    """Return the service of a kind that a data set holds, in itself or in what it wraps; None if there is none."""
    if isinstance(dataset, kind):
        return dataset
    if depth == _MAX_DEPTH or isinstance(dataset, _PLAIN):
        return None
    for part in getattr(dataset, "__dict__", {}).values():
        found = find_service(part, kind, depth + 1)
        if found is not None:
            return found
    return None


def watch_loaders(kind: type[Any]) -> None:
    """Watch from now on each `DataLoader` whose data set holds a service of this kind."""
    original = DataLoader.__iter__

    @functools.wraps(original)
    def begin(loader: DataLoader[Any]) -> Any:
        service: Loaded | None = find_service(loader.dataset, kind)
        if service is None:
            return original(loader)
        # Processes that continue would return batches that they loaded for the last pass.
        vars(loader)["persistent_workers"] = False
        if service.is_planned:
            check_loader(loader, service.batch_size)
        begun = service.begin_loading(loader.num_workers, is_ordered=_is_ordered(loader, service.batch_size))
        try:
            batches = original(loader)
        finally:
            service.end_beginning()
        if begun is None:
            return batches
        begun.start(loader.num_workers, lambda: torch_private.is_loading(batches))
        return _Loop(batches, service.batch_size, begun)

    DataLoader.__iter__ = begin  # type: ignore[method-assign]


def check_loader(loader: DataLoader[Any], batch_size: int) -> None:
    """Raise ProgramError if the batches of a loader are not those of its service."""
    if loader.batch_size is not None and loader.batch_size != batch_size:
        raise ProgramError(
            f"The DataLoader has batch_size={loader.batch_size}, and the data shard service was made with "
            f"batch_size={batch_size}. Give both the same."
        )
    is_own_sampler = loader.batch_size is None and loader.batch_sampler is not None
    if is_own_sampler and loader.num_workers > 1:
        raise ProgramError(
            "The DataLoader has a batch_sampler and several processes: how many records its batches have is not known "
            f"when they are loaded. Give it batch_size={batch_size} instead of it, or num_workers=1 or 0."
        )
    if loader.batch_size is None and loader.num_workers > 1:
        raise ProgramError(
            "The DataLoader brings records one by one, from several processes: Legato cannot know which records belong "
            f"to a batch. Give it batch_size={batch_size}, or num_workers=1 or 0."
        )
    if not getattr(loader, "in_order", True):
        raise ProgramError("The DataLoader has in_order=False: Legato would confuse its batches. Omit it.")


def _is_ordered(loader: DataLoader[Any], batch_size: int) -> bool:
    """Return whether a loader's batches are those of its service, in order; an iterable data set makes its own."""
    is_one_by_one = not isinstance(loader.dataset, IterableDataset) and loader.batch_size == batch_size
    return is_one_by_one and getattr(loader, "in_order", True)


class _Loop:
    """The iterator of a program's loop: the batches of torch's iterator, which a service tracks.

    A loop may end in a finaliser, on any thread. So `close` takes no lock and does not wait. Torch's iterator does
    wait when it is finalised: for its processes, which may wait for an answer that only the interrupted thread gives.
    So it is kept until the loop is over, and then released by a thread that is not joined.

    Args:
        batches: torch's iterator.
        batch_size: of the service whose records they are.
        begun: tracks the batches.
    """

    def __init__(self, batches: Any, batch_size: int, begun: LoaderPass) -> None:
        self._batches: Iterator[Any] | None = batches
        self._batch_size = batch_size
        self._pass = begun
        self._number = 0
        _kept[id(batches)] = batches
        _watch_ended()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._batches is None:
            raise StopIteration
        try:
            batch = next(self._batches)
        except StopIteration:
            self._pass.end()
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        number, self._number = self._number, self._number + 1
        size = self._pass.deliver(number)
        return batch if size is None else cut_batch(batch, self._batch_size, size, ())

    def close(self) -> None:
        """End the loop."""
        batches, self._batches = self._batches, None
        if batches is not None:
            self._pass.close()
            _ended.put(id(batches))

    def __del__(self) -> None:
        self.close()


_kept: Final[dict[int, Any]] = {}
"""Torch's iterators of all open loops, by their ids."""
_ended: Final[queue.SimpleQueue[int]] = queue.SimpleQueue()
_watching: Final[list[int]] = []


def _watch_ended() -> None:
    """Start the thread that releases the iterators of ended loops."""
    if _watching != [os.getpid()]:
        _watching[:] = [os.getpid()]
        threading.Thread(target=_release_forever, name="legato-ended-loops", daemon=True).start()


def _release_forever() -> None:
    while True:
        _kept.pop(_ended.get(), None)


def end_forked_with_parent() -> None:
    """Have processes that the program's main thread forks from now on end when this one does, however it ends."""
    own = os.getpid()
    if sys.platform == "linux":
        parents: list[int] = []
        os.register_at_fork(
            before=lambda: parents.__setitem__(slice(None), [own] if _is_main_thread(own) else []),
            after_in_child=lambda: _die_with(parents),
        )


def _is_main_thread(process: int) -> bool:
    # The kernel means the thread that forked, and only the main one lives as long as its process.
    return os.getpid() == process and threading.current_thread() is threading.main_thread()


def _die_with(parents: list[int]) -> None:
    for parent in parents:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
