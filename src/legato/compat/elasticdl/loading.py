"""Where a program's loader gets its records: in the program's process from the plan, in loader processes by asking.

Also what must be so when a `DataLoader` of such records begins: its batches have the size of the service's, its
processes run before this worker joins, so that no worker waits for their start, and they end with it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from legato.compat.elasticdl.batches import cut_batch
from legato.compat.elasticdl.loader_server import Address, Counter
from legato.compat.elasticdl.stream import Record
from legato.compat.elasticdl.task_queue import AsAsked, InOrder
from legato.core.errors import ProgramError
from legato.train import torch_private

_PR_SET_PDEATHSIG: Final = 1
_MAX_DEPTH: Final = 3
_PLAIN: Final = (str, bytes, int, float, bool, type(None))


class Loaded(Protocol):
    """A service as a loader sees it."""

    batch_size: int

    @property
    def is_planned(self) -> bool:
        """Whether a controller trains these records."""

    def begin_loading(self, num_processes: int, *, is_ordered: bool) -> InOrder | AsAsked | None:
        """Take note that a loader begins, before its processes are started.

        Args:
            num_processes: of them.
            is_ordered: its batches are those of the service, in their order.

        Returns:
            What hands out its batches, if they are not planned and have an order or come from processes.
        """

    def end_beginning(self) -> None:
        """Take note that the loader's processes are started."""

    def join(self, num_processes: int, may_come: Callable[[], bool]) -> None:
        """Join the job, when the loader's processes run, or will not."""

    def deliver(self) -> None:
        """Take note that the loader has brought a batch."""


class Feed:
    """The records of one process, one by one.

    Args:
        batch_size: of a batch.
        ask: of (number of a batch, generation); None at the end.
        generation: of the loader.
        place: number of this loader process, and how many there are.
    """

    def __init__(
        self,
        batch_size: int,
        ask: Callable[[int, int], tuple[Record, ...] | None],
        generation: int,
        place: tuple[int, int] = (0, 1),
    ) -> None:
        self.generation = generation
        self._batch_size = batch_size
        self._ask = ask
        self._index, self._num_processes = place
        self._num_batches = 0
        self._left: deque[Record] = deque()

    def next_batch(self) -> tuple[Record, ...]:
        """Return the records of this process's next batch; none at the end."""
        if self._left:
            found = tuple(self._left)
            self._left.clear()
            return found
        number = self._num_batches * self._num_processes + self._index
        records = self._ask(number, self.generation)
        if records:
            self._num_batches += 1
        return records or ()

    def next_record(self) -> Record | None:
        """Return the next record, None at the end."""
        if not self._left:
            self._left.extend(self.next_batch())
        return self._left.popleft() if self._left else None


def feed_of_loader(batch_size: int, address: Address, generation: int) -> Feed:
    """Return the records of this process, which is not the one that trains."""
    info = get_worker_info()
    place = (0, 1) if info is None else (info.id, info.num_workers)
    return Feed(batch_size, Counter(address).ask, generation, place)


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
    """See from now on when a program goes through a `DataLoader` whose data set holds a service of this kind."""
    original = DataLoader.__iter__

    @functools.wraps(original)
    def begin(loader: DataLoader[Any]) -> Any:
        service: Loaded | None = find_service(loader.dataset, kind)
        if service is None:
            return original(loader)
        # Processes that go on would bring what they have loaded for the last pass.
        vars(loader)["persistent_workers"] = False
        if service.is_planned:
            check_loader(loader, service.batch_size)
        handing = service.begin_loading(loader.num_workers, is_ordered=_is_ordered(loader, service.batch_size))
        try:
            batches = original(loader)
        finally:
            service.end_beginning()
        if handing is None and not service.is_planned:
            return batches
        if handing is None:
            service.join(loader.num_workers, lambda: torch_private.is_loading(batches))
        return _Loop(batches, service, handing)

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
            "The DataLoader brings records one by one, from several processes: they come in no batches that could be "
            f"told apart. Give it batch_size={batch_size}, or num_workers=1 or 0."
        )
    if not getattr(loader, "in_order", True):
        raise ProgramError("The DataLoader has in_order=False: batches would be taken for others. Leave it out.")


def _is_ordered(loader: DataLoader[Any], batch_size: int) -> bool:
    """Tell whether a loader's batches are those of its service, one by one; an iterable data set makes its own."""
    is_one_by_one = not isinstance(loader.dataset, IterableDataset) and loader.batch_size == batch_size
    return is_one_by_one and getattr(loader, "in_order", True)


class _Loop:
    """What a program's loop goes through: the batches of torch's iterator, of which a service takes note.

    A loop may end in a finaliser, on any thread. So `close` takes no lock and does not wait. Torch's iterator does
    wait when it is finalised: for its processes, which may wait for an answer that only the interrupted thread gives.
    So it is kept until the loop is over, and then released by a thread that is not joined.

    Args:
        batches: torch's iterator.
        service: whose records they are.
        handing: hands them out; None if they are planned.
    """

    def __init__(self, batches: Any, service: Loaded, handing: InOrder | AsAsked | None) -> None:
        self._batches: Iterator[Any] | None = batches
        self._service = service
        self._handing = handing
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
            if isinstance(self._handing, AsAsked):
                self._handing.end()
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        number, self._number = self._number, self._number + 1
        if self._handing is None:
            self._service.deliver()
        elif isinstance(self._handing, InOrder):
            self._handing.deliver(number)
            size = self._handing.size_of(number)
            return batch if size is None else cut_batch(batch, self._service.batch_size, size, ())
        return batch

    def close(self) -> None:
        """End the loop."""
        batches, self._batches = self._batches, None
        if batches is not None:
            if self._handing is not None:
                self._handing.close()
            _ended.put(id(batches))

    def __del__(self) -> None:
        self.close()


_kept: Final[dict[int, Any]] = {}
"""Torch's iterators of all open loops, by their ids."""
_ended: Final[queue.SimpleQueue[int]] = queue.SimpleQueue()
_watching: Final[list[int]] = []


def _watch_ended() -> None:
    """Have a thread of this process that lets go of the iterators of loops that are over."""
    if _watching != [os.getpid()]:
        _watching[:] = [os.getpid()]
        threading.Thread(target=_let_go_forever, name="legato-ended-loops", daemon=True).start()


def _let_go_forever() -> None:
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
