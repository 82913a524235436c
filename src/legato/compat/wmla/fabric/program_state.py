"""Sends the state of a program's callbacks, losses and metrics to joining workers.

Programs for WMLA do not register this state with Legato. Legato sends the attributes that have changed since the
beginning: plain values, the ``state_dict()`` of objects that have one, and the attributes of objects of the program's
own classes. It reports attributes that it cannot send. Decides nothing about the training.
"""

from __future__ import annotations

import copy
import io
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any, Final

import torch
from torch.optim.lr_scheduler import LRScheduler

from legato.compat.wmla.fabric.plain_values import CannotTravel, is_same, is_same_outline, outline, pack, unpack

_GIVEN: Final = ("params", "model")
_MISSING: Final = object()
_MAX_DEPTH: Final = 3
_NUM_WATCHED: Final = 3
_EACH_HAS_ITS_OWN: Final = (io.IOBase, logging.Logger, PurePath, ModuleType)
_MODULE_PARTS: Final = frozenset(vars(torch.nn.Module()))


class Memory:
    """The attributes of an object that have changed, in the form of a ``state_dict()``.

    Attributes that still have their first value, such as the path of a log, are each worker's own and are not sent.

    Args:
        name: of the object in messages.
        thing: the object, which has not been called yet.
        kept: objects whose state the run already sends.
        depth: how deep the object is in other objects.

    Attributes:
        name: of the object in messages.
    """

    def __init__(self, name: str, thing: Any, kept: Collection[Any] = (), depth: int = 0) -> None:
        self.name, self._thing, self._depth = name, thing, depth
        self._kept = kept
        self._values: dict[str, Any] = getattr(thing, "__dict__", {})
        self._parts: dict[str, tuple[Any, Memory]] = {}
        self._reported: set[str] = set()
        self._first = copy.deepcopy(dict(self._plain()))
        self._outlines = {name: outline(value) for name, value in self._others()}
        for part_name, value in self._others():
            self._memory_of(part_name, value)

    def state_dict(self) -> dict[str, Any]:
        """Return the changed attributes, and the names of those that cannot be sent."""
        values = {name: value for name, value in self._plain() if not is_same(value, self._first.get(name, _MISSING))}
        states: dict[str, Any] = {}
        left: dict[str, str] = {}
        for name, value in self._others():
            state = self._state_of(name, value)
            if state is not None:
                states[name] = {"kind": _kind_of(value), "state": state}
            elif not is_same_outline(outline(value), self._outlines.get(name, _MISSING)):
                left[name] = _kind_of(value)
        return {"values": values, "states": states, "left": left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned. Attributes that cannot be sent stay unchanged, and are reported."""
        elsewhere = {*state["states"], *state["left"]}
        first = {name: value for name, value in copy.deepcopy(self._first).items() if name not in elsewhere}
        for name, value in (first | state["values"]).items():
            self._values[name] = unpack(value, self._values.get(name))
        for name, kind in state["left"].items():
            self._report(name, f"It is a {kind}, which Legato cannot transfer.")
        for name, part in state["states"].items():
            own = self._values.get(name, _MISSING) if name else self._thing
            if own is _MISSING or _kind_of(own) != part["kind"]:
                self._report(name, f"It is a {part['kind']}, which was made before this worker joined.")
            elif (inner := self._memory_of(name, own)) is not None:
                inner.load_state_dict(part["state"])
            else:
                own.load_state_dict(part["state"])

    # ------------------------------------------------------------ inside

    def _plain(self) -> Iterator[tuple[str, Any]]:
        for name, value in tuple(self._values.items()):
            if self._is_own(name, value):
                try:
                    yield name, pack(value)
                except CannotTravel:
                    continue

    def _others(self) -> Iterator[tuple[str, Any]]:
        plain = {name for name, _ in self._plain()}
        for name, value in tuple(self._values.items()):
            if name not in plain and self._is_own(name, value):
                yield name, value
        if isinstance(self._thing, torch.nn.Module):
            yield "", self._thing

    def _is_own(self, name: str, value: Any) -> bool:
        if isinstance(value, _EACH_HAS_ITS_OWN) or any(value is other for other in self._kept):
            return False
        return name not in (_MODULE_PARTS if isinstance(self._thing, torch.nn.Module) else _GIVEN)

    def _state_of(self, name: str, value: Any) -> dict[str, Any] | None:
        """Return the state of an attribute that is not a plain value; None if it has no state that can be sent."""
        inner = self._memory_of(name, value)
        if inner is not None:
            return inner.state_dict()
        if isinstance(value, type) or not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
            return None
        state: dict[str, Any] = {}
        for key, part in value.state_dict().items():
            try:
                state[key] = pack(part)
            except CannotTravel:
                # The state of a scheduler may contain functions, which the program's own scheduler has, too.
                if not isinstance(value, LRScheduler):
                    return None
        return state

    def _memory_of(self, name: str, value: Any) -> Memory | None:
        """Return the `Memory` of an object of one of the program's own classes; None for other objects."""
        known = self._parts.get(name)
        if known is not None and known[0] is value:
            return known[1]
        if value is self._thing or not _is_of_program(value, self._thing) or self._depth >= _MAX_DEPTH:
            return None
        made = Memory(f"{self.name}.{name}", value, (*self._kept, self._thing), self._depth + 1)
        self._parts[name] = (value, made)
        return made

    def _report(self, name: str, why: str) -> None:
        if name in self._reported:
            return
        self._reported.add(name)
        sys.stderr.write(
            f"legato: {self.name}.{name} differs between this worker and those that joined before it. {why} "
            "The weights may depend on when workers join. Create it before train(), and keep its state in numbers, "
            "strings, tensors, or lists and dicts of them, or give its class state_dict() and load_state_dict().\n"
        )


class TurnWatch:
    """Warns if a loss or metric changes its state in the first turns of the loop: workers compute different ones.

    Args:
        memories: of the program's loss and metrics.
    """

    def __init__(self, memories: Sequence[Memory]) -> None:
        self._memories = memories
        self._num_turns = 0
        self._reported: set[str] = set()

    def do(self, turn: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Run a turn of the loop, and warn of state that it has changed."""
        if self._num_turns >= _NUM_WATCHED:
            return turn()
        self._num_turns += 1
        before = [copy.deepcopy(memory.state_dict()) for memory in self._memories]
        result = turn()
        for memory, known in zip(self._memories, before, strict=True):
            self._compare(memory, known, memory.state_dict())
        return result

    def _compare(self, memory: Memory, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        for part in ("values", "states", "left"):
            for name in after[part]:
                if is_same(after[part][name], before[part].get(name, _MISSING)):
                    continue
                full = f"{memory.name}.{name}" if name else memory.name
                if full not in self._reported:
                    self._reported.add(full)
                    sys.stderr.write(
                        f"legato: {full} changes while a micro-batch is computed. Each worker computes different "
                        "micro-batches, so the result depends on the number of workers. Make the function depend only "
                        "on its arguments, or change the value in a user_callback, which all workers call alike.\n"
                    )


def find_owner(function: Any) -> Any:
    """Return the object that may keep state for a function: the object whose method it is, or the function itself."""
    return getattr(function, "__self__", function)


def _is_of_program(value: Any, owner: Any) -> bool:
    """Return whether an object is of one of the program's own classes and its attributes can be sent one by one."""
    if isinstance(value, type | FunctionType | ModuleType) or not hasattr(value, "__dict__"):
        return False
    has_state = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
    if has_state or hasattr(value, "__getitem__"):
        # Objects that can be indexed are data.
        return False
    return type(value).__module__ in ("__main__", type(owner).__module__)


def _kind_of(value: Any) -> str:
    return value.__qualname__ if isinstance(value, type) else type(value).__qualname__
