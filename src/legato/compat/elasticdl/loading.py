"""Where a program's loader gets its records: in the program's process from the plan, in loader processes by asking.

Also what must be so when a `DataLoader` of such records begins: its batches have the size of the service's, its
processes run before this worker joins, so that nobody waits for their start, and they end with it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from legato.compat.elasticdl.batches import cut_batch
from legato.compat.elasticdl.handing import AsAsked, InOrder
from legato.compat.elasticdl.office import Address, Counter
from legato.compat.elasticdl.stream import Record
from legato.core.errors import ProgramError

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
            What hands out its batches, if nobody plans them and they have an order or come from processes.
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
        if isinstance(handing, InOrder):
            return _cutting(batches, handing, service.batch_size)
        if handing is not None:
            return _bringing(batches, handing)
        if not service.is_planned:
            return batches
        service.join(loader.num_workers, lambda: _may_ask(batches))
        return _delivering(batches, service)

    DataLoader.__iter__ = begin  # type: ignore[method-assign]


def _may_ask(batches: Any) -> bool:
    """Tell whether the processes of a loader live, and none of them has met an error before it asked for anything."""
    results = getattr(batches, "_worker_result_queue", None)
    is_silent = results is None or results.empty()
    return is_silent and all(process.is_alive() for process in getattr(batches, "_workers", ()))


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


def _cutting(batches: Any, in_order: InOrder, batch_size: int) -> Iterator[Any]:
    try:
        for number, batch in enumerate(batches):
            in_order.deliver(number)
            size = in_order.size_of(number)
            yield batch if size is None else cut_batch(batch, batch_size, size, ())
    finally:
        in_order.close()


def _bringing(batches: Any, as_asked: AsAsked) -> Iterator[Any]:
    try:
        yield from batches
        as_asked.end()
    finally:
        as_asked.close()


def _delivering(batches: Any, service: Loaded) -> Iterator[Any]:
    for batch in batches:
        service.deliver()
        yield batch


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
