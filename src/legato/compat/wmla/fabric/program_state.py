"""State that callbacks, losses and metrics of a program collect, and that joining workers must get.

Programs for WMLA do not pass it to Legato. What of it has changed since the beginning travels, as far as it can: plain
values,
objects that give their state, and objects of the program's own classes, which are looked into. What cannot is reported.
Decides nothing about the training.
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
    """What an object remembers, as something that has state.

    What it was made with is each worker's own, such as the path of a log, and comes to no other.

    Args:
        name: for what is said.
        thing: has not been called yet.
        kept: objects whose state travels otherwise.
        depth: of objects in objects.

    Attributes:
        name: as given.
    """

    def __init__(self, name: str, thing: Any, kept: Collection[Any] = (), depth: int = 0) -> None:
        self.name, self._thing, self._depth = name, thing, depth
        self._kept = kept
        self._values: dict[str, Any] = getattr(thing, "__dict__", {})
        self._parts: dict[str, tuple[Any, Memory]] = {}
        self._told: set[str] = set()
        self._first = copy.deepcopy(dict(self._plain()))
        self._outlines = {name: outline(value) for name, value in self._others()}
        for part_name, value in self._others():
            self._memory_of(part_name, value)

    def state_dict(self) -> dict[str, Any]:
        """Return what is not as it was in the beginning, and what of that cannot travel."""
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
        """Undo `state_dict`; what cannot travel stays as it is, and is reported where it differs."""
        elsewhere = {*state["states"], *state["left"]}
        first = {name: value for name, value in copy.deepcopy(self._first).items() if name not in elsewhere}
        for name, value in (first | state["values"]).items():
            self._values[name] = unpack(value, self._values.get(name))
        for name, kind in state["left"].items():
            self._tell(name, f"It is a {kind}, which Legato cannot transfer.")
        for name, part in state["states"].items():
            own = self._values.get(name, _MISSING) if name else self._thing
            if own is _MISSING or _kind_of(own) != part["kind"]:
                self._tell(name, f"It is a {part['kind']}, which was made before this worker joined.")
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
        """Return the state of an attribute that is no plain value; None: it has none that could travel."""
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
                # Schedulers name functions in theirs, which are recreated with them.
                if not isinstance(value, LRScheduler):
                    return None
        return state

    def _memory_of(self, name: str, value: Any) -> Memory | None:
        """Return the memory of an object of one of the program's own classes."""
        known = self._parts.get(name)
        if known is not None and known[0] is value:
            return known[1]
        if value is self._thing or not _is_of_program(value, self._thing) or self._depth >= _MAX_DEPTH:
            return None
        made = Memory(f"{self.name}.{name}", value, (*self._kept, self._thing), self._depth + 1)
        self._parts[name] = (value, made)
        return made

    def _tell(self, name: str, why: str) -> None:
        if name in self._told:
            return
        self._told.add(name)
        sys.stderr.write(
            f"legato: {self.name}.{name} differs between this worker and those that joined before it. {why} "
            "The weights may depend on the workers. Make it before train(), and keep what changes in numbers, texts, "
            "tensors, or lists and dicts of such, or give its class state_dict() and load_state_dict().\n"
        )


class TurnWatch:
    """Looks at losses and metrics in the first turns: what they change there is not the same in all workers.

    Args:
        memories: of them.
    """

    def __init__(self, memories: Sequence[Memory]) -> None:
        self._memories = memories
        self._num_turns = 0
        self._told: set[str] = set()

    def do(self, turn: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Do a turn of the loop, and tell what it has changed that it should not."""
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
                if full not in self._told:
                    self._told.add(full)
                    sys.stderr.write(
                        f"legato: {full} changes while a micro-batch is computed. Every worker computes other ones, so "
                        "the result depends on the workers. Let it depend on its arguments only, or change it "
                        "in a user_callback, where all workers do the same.\n"
                    )


def find_owner(function: Any) -> Any:
    """Return what remembers something where a function is called: the object whose method it is, or itself."""
    return getattr(function, "__self__", function)


def _is_of_program(value: Any, owner: Any) -> bool:
    """Return whether an object is one of a class of the program's own, and can be looked into."""
    if isinstance(value, type | FunctionType | ModuleType) or not hasattr(value, "__dict__"):
        return False
    has_state = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
    if has_state or hasattr(value, "__getitem__"):
        # What can be indexed is data.
        return False
    return type(value).__module__ in ("__main__", type(owner).__module__)


def _kind_of(value: Any) -> str:
    return value.__qualname__ if isinstance(value, type) else type(value).__qualname__
