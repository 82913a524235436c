"""Decides whether a loader with ``num_workers="auto"`` starts a process.

A loader process has a copy of the data set. What the program changes after the copy does not reach the process, so this
module lets a process load ahead only if the copy can be compared cheaply before each batch that the process made is
used: attributes, functions, the global variables that they name, and the content of arrays. It leaves out data sets
that reading changes (caches, counters), and those with open files, locks and other handles.

The comparison does not see everything: docs/api.md lists what it misses. So this is not the default.
"""

from __future__ import annotations

import dis
import math
import multiprocessing
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import PosixPath
from time import perf_counter
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import get_worker_info

from legato.system.kernel_files import read_kib
from legato.train.data.dataset_state import WHOLE_BYTES, DatasetState, Signer, Unwatched, is_arrow

NUM_MEASURED: Final = 8
_MIN_LOAD_S: Final = 1e-3  # sending a batch between processes takes a fraction of this
_MIN_SHARE: Final = 0.1
_NOTABLE_SHARE: Final = 0.3
_MAX_COMPARING: Final = 0.1
_LONGEST_COMPARING_S: Final = 0.5
_NUM_COMPARED: Final = 4  # the first comparison takes several times as long as later ones
_NUM_COLD: Final = 4
_NUM_JUDGED: Final = 16
_NUM_IN_FLIGHT: Final = 8
_LONG: Final = 100
_SHARED: Final = "/dev/shm"  # noqa: S108 - where torch puts the tensors that it sends


class Overlap:
    """Measures how long a loader loads, and decides when a process loads ahead.

    Args:
        things: the data set and what else is copied with it.
        num_workers: returns the number of workers on this machine.
        say: receives what the user should know: the decision, or what prevents it.
        clock: seconds.
        find_obstacle: returns what the machine has too little of, for batches of so many bytes.
    """

    def __init__(
        self,
        *things: Any,
        num_workers: Callable[[], int],
        say: Callable[[str], None],
        clock: Callable[[], float] = perf_counter,
        find_obstacle: Callable[[int, int], str | None] | None = None,
    ) -> None:
        self._things = things
        self._num_workers = num_workers
        self._say = say
        self._clock = clock
        self._find_obstacle = find_obstacle or find_obstacle_here
        self._is_over = False
        self._state: DatasetState | None = None
        self._began = 0.0
        self._ended: float | None = None
        self._num_ahead, self._ahead, self._num_dear = 0, 0.0, 0
        self._reset()

    def begin_pass(self) -> None:
        """Forget when the last batch was loaded: between two passes the program does other things."""
        self._ended = None

    def begin_load(self) -> None:
        """Note that a batch is now loaded in this process."""
        self._began = self._clock()

    def end_load(self, batch: Any) -> bool:
        """Note that the batch is loaded. Returns whether a process should load from now on."""
        now = self._clock()
        if self._is_over:
            return False
        if self._ended is not None:
            self._training += self._began - self._ended
            self._loading += now - self._began
            self._num_loads += 1
        self._ended = now
        if self._state is not None:
            return self._decide(self._state)
        if self._num_loads >= NUM_MEASURED:
            self._consider(batch)
        return False

    def find_reason_to_end(self, state: DatasetState | None) -> str | None:
        """Note that a batch of the process is asked for. Returns why it must not be used, and the process must end.

        Args:
            state: of the data set when the process copied it.
        """
        now, before = self._clock(), self._ended
        self._ended = now
        if before is not None:
            self._num_ahead += 1
            self._ahead += now - before if self._num_ahead > _NUM_COLD else 0.0
            if self._num_ahead == _NUM_COLD + _NUM_JUDGED:
                usual = (self._loading + self._training) / self._num_loads
                if self._ahead / _NUM_JUDGED >= usual:
                    return "it saved no time"
                self._num_ahead, self._ahead = _NUM_COLD, 0.0
        began = perf_counter()
        if state is not None and state.has_changed():
            return _describe_change(state, "the program has changed the data set during a pass")
        took = perf_counter() - began
        self._num_dear = self._num_dear + 1 if took > self._most_for_comparing else 0
        return self._describe_comparing(took) if self._num_dear == _NUM_JUDGED else None

    def give_up(self, why: str) -> None:
        """Do not start a process again. Says why."""
        self._is_over = True
        self._say(f"A loader process, which loaded batches ahead, has ended: {why}. This process loads from now on.")

    @property
    def _share(self) -> float:
        return self._loading / (self._loading + self._training)

    @property
    def _most_for_comparing(self) -> float:
        return _MAX_COMPARING * self._loading / self._num_loads

    def _reset(self) -> None:
        self._loading = self._training = 0.0
        self._num_loads = 0

    def _consider(self, batch: Any) -> None:
        """Begin to watch the data set, if loading takes long and the machine has room; else measure again."""
        is_worth_it = self._loading / self._num_loads >= _MIN_LOAD_S and self._share >= _MIN_SHARE
        if is_worth_it and self._find_obstacle(self._num_workers(), _num_bytes(batch)) is None:
            # The next batch is still loaded here: that shows whether reading changes the data set.
            self._state = DatasetState(*self._things, signer=StrictSigner)
        else:
            self._reset()

    def _decide(self, state: DatasetState) -> bool:
        self._state, self._is_over = None, True
        reason = self._find_reason_against(state)
        if reason is None:
            self._say(
                f"Loading takes {self._share:.0%} of the time of a step, so a process now loads ahead. "
                "num_workers=N starts N processes; num_workers=0 prevents it."
            )
            return True
        if self._share >= _NOTABLE_SHARE:
            self._say(
                f"Loading takes {self._share:.0%} of the time of a step. Legato does not start a loader process by "
                f"itself: {reason}. If nothing changes the data set within a pass, num_workers=2 loads ahead."
            )
        return False

    def _find_reason_against(self, state: DatasetState) -> str | None:
        """Return why no process can load from now on; ``state`` is from before the last batch was loaded."""
        took = math.inf
        for _ in range(_NUM_COMPARED):
            began = self._clock()
            if state.has_changed():
                return _describe_change(
                    state,
                    "the data set has changed while one batch was loaded and trained, as a cache or a counter does",
                )
            took = min(took, self._clock() - began)
            if took <= self._most_for_comparing:
                return None
        return self._describe_comparing(took)

    def _describe_comparing(self, took_s: float) -> str:
        usual = self._loading / self._num_loads
        return (
            f"comparing the data set takes too long ({1e3 * took_s:.2f} ms for each batch, which is loaded in "
            f"{1e3 * usual:.2f} ms; at most {_MAX_COMPARING:.0%} of that)"
        )


def _describe_change(state: DatasetState, changed: str) -> str:
    return changed if state.obstacle is None else f"the data set cannot be compared: {state.obstacle}"


class StrictSigner(Signer):
    """Compares more than `Signer`, and refuses what cannot be compared completely.

    More: the global variables that functions of the program name, all attributes of its classes, and the owner of a
    method. Functions and classes of installed packages count as constant.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._until = perf_counter() + _LONGEST_COMPARING_S

    def reducer_override(self, thing: Any) -> Any:
        """Refuse large arrays and tensors, mapped files, and modules of the program; read-only arrays are constant."""
        if perf_counter() > self._until:
            raise Unwatched(f"comparing it takes longer than {_LONGEST_COMPARING_S} s")
        if isinstance(thing, torch.Tensor):
            _refuse_large("tensor", thing.nbytes)
        if is_arrow(thing):
            _refuse_large("table", thing.get_total_buffer_size())
        if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
            if _is_read_only(thing):
                return self.reduce_object(thing, None)
            if isinstance(thing, np.memmap):
                raise Unwatched("it maps a file")
            _refuse_large("writable array", thing.nbytes)
        if isinstance(thing, types.ModuleType):
            if not _is_installed(getattr(thing, "__file__", None), thing.__name__):
                raise Unwatched(f"it holds the module {thing.__name__} of the program")
            return str, (thing.__name__,)
        return super().reducer_override(thing)

    def condense(self, value: Any) -> Any:
        """Compare a list of constants with a copy of it: ten times as fast as a digest, because items are identical."""
        if type(value) is not list or len(value) < _LONG:
            return super().condense(value)
        known = self._copies.get(id(value))
        if known is None:
            if not _are_constants(value):
                return super().condense(value)
            known = self._copies[id(value)] = (f"list {len(self._copies)}", value, list(value))
        name, _, copy = known
        return name if value == copy else (name, "changed")

    def parts_of_object(self, thing: Any) -> Any:
        """Refuse an object that Python cannot copy, such as an open file or a socket; else as `Signer`."""
        try:
            thing.__reduce_ex__(4)
        except Exception as error:
            raise Unwatched(_describe_handle(thing)) from error
        return super().parts_of_object(thing)

    def parts_of_class(self, kind: type) -> Any:
        """Return the attributes of a class of the program."""
        return self.settings_of(kind)

    def settings_of(self, kind: type) -> Any:
        """Return all attributes of an object's classes, with the code of their methods."""
        return [
            [(name, _unwrap(value)) for name, value in vars(each).items() if name not in _OF_TYPES]
            for each in kind.__mro__
            if not _is_installed(getattr(sys.modules.get(each.__module__), "__file__", None), each.__module__)
        ]

    def parts_of_function(self, function: Any) -> Any:
        """Return the global variables that a function of the program names, besides what `Signer` compares."""
        parts = [super().parts_of_function(function), getattr(function, "__self__", None)]
        code = function.__code__
        if _is_installed(code.co_filename):
            return parts
        names, attributes = _names_in(code)
        known = function.__globals__
        # It answers only in loader processes.
        if "get_worker_info" in attributes or any(known.get(name) is get_worker_info for name in names):
            raise Unwatched(f"{function.__qualname__} calls get_worker_info, which answers only in loader processes")
        return [*parts, [_global(known[name], attributes) for name in sorted(names) if name in known]]

    def parts_of_handle(self, thing: Any) -> Any:
        """Refuse a handle: processes that share an open file move its position for one another."""
        raise Unwatched(_describe_handle(thing))


def _refuse_large(what: str, num_bytes: int) -> None:
    if num_bytes > WHOLE_BYTES:
        raise Unwatched(
            f"it holds a {what} of {num_bytes / 2**20:.0f} MiB, and only up to {WHOLE_BYTES >> 20} MiB are compared"
        )


def _describe_handle(thing: Any) -> str:
    kind = type(thing)
    return f"it holds an open file, a lock or another handle ({kind.__module__}.{kind.__qualname__})"


def _are_constants(items: list[Any]) -> bool:
    """Return whether all items are constants, or tuples of constants."""
    kinds = set(map(type, items))
    if tuple in kinds:
        kinds.remove(tuple)
        kinds.update(map(type, chain.from_iterable(item for item in items if type(item) is tuple)))
    return kinds <= _CONSTANTS


_CONSTANTS: Final = {str, bytes, int, float, bool, type(None), PosixPath}


def _is_read_only(array: np.ndarray[Any, Any]) -> bool:
    """Return whether no array writes into this memory: neither this one nor those of which it is a view."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, bytes)


_OF_TYPES: Final = frozenset(
    ["__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__", "__slotnames__", "_abc_impl"]
)
"""Attributes that belong to every class; these do not change."""


def _unwrap(value: Any) -> Any:
    """Return the function of a static method, class method or property."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value


def _global(value: Any, attributes: frozenset[str]) -> Any:
    """Return what is compared of a global variable; of a module of the program, the attributes that code names."""
    if not isinstance(value, types.ModuleType):
        return value
    if _is_installed(getattr(value, "__file__", None), value.__name__):
        return value.__name__
    return [(name, vars(value)[name]) for name in sorted(attributes) if name in vars(value)]


@lru_cache(maxsize=1024)
def _names_in(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of global variables and of attributes in a function, and in the functions inside it."""
    names, attributes = set(), set()
    for each in _codes(code):
        for step in dis.get_instructions(each):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(step.argval)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                attributes.add(step.argval)
    return frozenset(names), frozenset(attributes)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)


@lru_cache(maxsize=1024)
def _is_installed(file: str | None, module: str = "") -> bool:
    """Return whether code belongs to Python or to an installed package, which does not change while a job trains."""
    if file is None:
        return module != "__main__"
    return file.startswith(_INSTALLED)


_INSTALLED: Final = (*(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")), "<frozen")


# ---------------------------------------------------------------- the machine


def find_obstacle_here(num_workers: int, num_bytes: int) -> str | None:
    """Return what this machine has too little of for one more process per worker; None if it has enough.

    Args:
        num_workers: on this machine.
        num_bytes: of the tensors of a batch.
    """
    try:
        shared = os.statvfs(_SHARED)
        used, free = read_kib("/proc/self/status", "RssAnon"), read_kib("/proc/meminfo", "MemAvailable")
    except OSError as error:
        return f"the room of this machine cannot be read: {error}"
    obstacles = {
        "loader processes are forked, which is safe on Linux only": sys.platform != "linux",
        "a process of a pool may not start others": multiprocessing.current_process().daemon,
        "loader processes have one thread, and another number may give other bits": torch.get_num_threads() != 1,
        "every core has a worker": len(os.sched_getaffinity(0)) <= num_workers,
        f"{_SHARED} has no room for batches": shared.f_bavail * shared.f_frsize < _NUM_IN_FLIGHT * num_bytes,
        # A forked process keeps the pages that its parent changes.
        "the memory is too small for a copy of this process": 2 * used > free,
    }
    return next((obstacle for obstacle, is_there in obstacles.items() if is_there), None)


def _num_bytes(batch: Any) -> int:
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    if isinstance(batch, list | tuple):
        return sum(map(_num_bytes, batch))
    return sum(map(_num_bytes, batch.values())) if isinstance(batch, dict) else 0
