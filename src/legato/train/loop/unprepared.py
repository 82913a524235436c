"""Finds what a program's loop changes and Legato does not transfer, because the program did not prepare it.

These are modules, and copies of a prepared model's parameters in a dict or a list, such as their average. It also finds
metrics of torchmetrics that the loop updates.

It looks at the variables of the program where the program calls Legato, so it finds what most programs have, not all
that may exist. Never changes an object.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import sysconfig
import weakref
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from legato.train import torch_private
from legato.train.state.checksums import checksums

_INSTALLED: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    | {str(Path(__file__).parents[2]), "<frozen "}
)
_CONTAINERS: Final = (dict, OrderedDict, list, tuple)
_FOUND_ELSEWHERE: Final = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
_LOCALS: Final = frozenset({"locals", "vars", "dir", "eval", "exec", "f_locals"})
_MOST_ITEMS: Final = 64
_MOST_OBJECTS: Final = 4096
_MOST_TENSORS: Final = 16
_MOST_WARNINGS: Final = 8
_DEPTH: Final = 3
_LOST: Final = (
    "A worker that joins, and a job that resumes, continue with the values that their program gives it at the start, "
    "so the result may depend on the workers."
)
_Shapes = dict[str, torch.Size]


class Prepared:
    """What the program has prepared.

    Args:
        things: all prepared objects.
        tensors: the parameters and buffers of the models.
        held: returns all tensors of the prepared objects' state; called only if it matters.
    """

    def __init__(
        self,
        things: Iterable[Any],
        tensors: Iterable[torch.Tensor],
        held: Callable[[], Iterable[torch.Tensor]] = tuple,
    ) -> None:
        kept = list(things)
        self.things = {id(thing) for thing in kept}
        self.tensors = {id(tensor) for tensor in tensors}
        models = [thing for thing in kept if isinstance(thing, torch.nn.Module)]
        parameters = [dict(model.named_parameters()) for model in models]
        trained = [{name: each for name, each in own.items() if each.requires_grad} for own in parameters]
        # One tensor alone may have the name and the shape of a parameter by chance.
        self._shapes: list[_Shapes] = [
            {name: each.shape for name, each in own.items()} for own in (*parameters, *trained) if len(own) > 1
        ]
        own = [each for model in models for each in (*model.parameters(), *model.buffers())]
        self._most = 2 * len(own)
        # Empty tensors have the address 0.
        self._memory = {_address_of(each) for each in own} - {0}
        self._held = held
        self._known: set[int] | None = None

    def is_copied_in(self, value: Any) -> bool:
        """Return whether a container has copies of all parameters of a model, or of all that train.

        And none of its tensors is part of a prepared object's state.
        """
        # The program may have containers with millions of other things.
        if not any(len(own) <= len(value) <= self._most for own in self._shapes):
            return False
        parts = list(value.values()) if isinstance(value, dict) else list(value)
        if not all(isinstance(part, torch.Tensor) and _has_values(part) for part in parts):
            return False
        if isinstance(value, dict):
            named = {str(name).removeprefix("module."): part.shape for name, part in value.items()}
            is_copy = any(own.items() <= named.items() for own in self._shapes)
        else:
            shapes = [part.shape for part in parts]
            is_copy = any(shapes == list(own.values()) for own in self._shapes)
        addresses = [_address_of(part) for part in parts]
        if not is_copy or None in addresses or not self._memory.isdisjoint(addresses):
            return False
        if self._known is None:
            self._known = {id(tensor) for tensor in self._held()}
        return self._known.isdisjoint(map(id, parts))


class _Seen(NamedTuple):
    """A module or a container at one look.

    Args:
        sums: checksums of its smallest tensors.
        parts: the module; of a container these tensors.
        place: its id.
        step: of the look.
        stays: a container had the same tensors after the turns of that step.
        lasts: a container was the same at two looks with a step between them.
    """

    sums: dict[str, int]
    parts: list[weakref.ref[Any]]
    place: int
    step: int
    stays: bool = False
    lasts: bool = False


class Unprepared:
    """What the program has in its variables besides the objects that it has prepared. Warns once of each.

    It gives advice only. So an object that raises an error when it is looked at ends a look, and nothing else.

    Args:
        device: of the job.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seen: dict[str, _Seen] = {}
        self._updates: dict[str, tuple[weakref.ref[torch.nn.Module], dict[str, int]]] = {}
        self._named: set[str] = set()

    def find_changes(
        self, frame: FrameType | None, prepared: Prepared, step: int, *, begins_step: bool = False
    ) -> list[str]:
        """Return a warning for each thing that was not prepared and has changed since an earlier call.

        Args:
            frame: called by the program.
            prepared: what the program has prepared.
            step: number of complete steps.
            begins_step: the turns of a step follow, and then `end_turns`.
        """
        warnings: list[str] = []
        before, self._seen, self._updates = self._seen, {}, {}
        with contextlib.suppress(Exception):
            for name, thing in _find(frame, prepared):
                if len(self._named) >= _MOST_WARNINGS:
                    break
                is_module = isinstance(thing, torch.nn.Module)
                if is_module and begins_step and (updates := _updates_of(thing)):
                    self._updates[name] = weakref.ref(thing), updates
                pairs = [*(_tensors_of(thing, prepared.tensors) if is_module else _tensors_in(thing))]
                parts = [weakref.ref(part) for part in ([thing] if is_module else [tensor for _, tensor in pairs])]
                seen, old = _Seen(checksums(pairs, self._device), parts, id(thing), step), before.get(name)
                is_same = old is not None and _is_same(name, old, seen)
                lasts = old is not None and not is_module and (old.lasts or (is_same and step > old.step))
                self._seen[name] = seen._replace(lasts=lasts)
                if old is None or name in self._named or not (is_same or old.lasts):
                    continue
                changed = next((key for key, total in old.sums.items() if seen.sums.get(key, total) != total), None)
                if changed is not None:
                    self._named.add(name)
                    warnings.append(_warn_of_module(name, thing, changed) if is_module else _warn_of_copy(name, thing))
        return warnings

    def end_turns(self) -> list[str]:
        """Return a warning for each metric that the turns of a step have updated. Call it before the step completes."""
        warnings: list[str] = []
        with contextlib.suppress(Exception):
            for name, seen in self._seen.items():
                self._seen[name] = seen._replace(stays=all(part() is not None for part in seen.parts))
            for name, (reference, updates) in self._updates.items():
                metric = reference()
                if metric is not None and name not in self._named and _updates_of(metric) != updates:
                    self._named.add(name)
                    warnings.append(_warn_of_metric(name, metric))
        self._updates = {}
        return warnings


def _is_same(name: str, old: _Seen, new: _Seen) -> bool:
    """Return whether a module or container is the one of an earlier look, and not another one that every step makes.

    A program may replace the tensors of a container, such as ``average.shadow``, after each step. Then only the id of
    the container shows it, which another one may get later: one that each turn makes again.
    """
    # References are compared as what they refer to, and tensors one number after the other.
    if len(old.parts) == len(new.parts) and all(a() is b() for a, b in zip(old.parts, new.parts, strict=True)):
        return True
    return old.stays and "." in name and old.place == new.place


def _warn_of_module(name: str, module: torch.nn.Module, changed: str) -> str:
    return (
        f"Training changes {changed} of {name} ({type(module).__name__}), which was not given to run.prepare. {_LOST} "
        "Pass it to run.prepare(...), and change it under `if run.stepped:`; the average of a model, and any other "
        "copy that gets no gradients, with requires_grad_(False). For a metric that counts, take run.note."
    )


def _warn_of_copy(name: str, container: Any) -> str:
    return (
        f"Training changes {name}, a {type(container).__name__} with a copy of a model's parameters, which was not "
        f"given to run.prepare. {_LOST} Keep it in a module, or in an object with state_dict() and load_state_dict(), "
        "pass that to run.prepare(...), and change it under `if run.stepped:`."
    )


def _warn_of_metric(name: str, metric: torch.nn.Module) -> str:
    return (
        f"The loop updates the metric {name} ({type(metric).__name__}) in its turns: each worker counts its own "
        "micro-batches only, so the number depends on the workers. Compute it for each micro-batch, such as by "
        "torchmetrics.functional, pass it to run.note(...), and read run.notes under `if run.stepped:`. For a "
        "validation set, pass functions as metrics to run.evaluate."
    )


def _updates_of(module: torch.nn.Module) -> dict[str, int]:
    """Return how often each metric of torchmetrics in a module was updated since it was reset, by its path."""
    # A collection has no such count, and asking it for its state changes it.
    metrics = (
        (path, part)
        for path, part in module.named_modules()
        if hasattr(type(part), "update_count") and hasattr(type(part), "metric_state")
    )
    return {path: part.update_count for path, part in metrics}


def _tensors_of(module: torch.nn.Module, prepared: Container[int]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the smallest parameters and the smallest buffers of a module: what changes a copy of a model changes all.

    Without what may change and does not matter: the statistics of a norm in training mode, and caches.
    """
    buffers = [
        (f"{path}.{name}" if path else name, tensor)
        for path, part in module.named_modules()
        if not hasattr(part, "track_running_stats")
        for name, tensor in torch_private.buffers_of(part).items()
        if tensor is not None and torch_private.is_persistent(part, name)
    ]
    for tensors in (list(module.named_parameters()), buffers):
        own = [each for each in tensors if id(each[1]) not in prepared and _has_values(each[1])]
        yield from sorted(own, key=lambda each: each[1].nbytes)[:_MOST_TENSORS]


def _tensors_in(container: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the smallest tensors of a container; of a whole state_dict too, what changes a copy changes them."""
    pairs = container.items() if isinstance(container, dict) else enumerate(container)
    return sorted(((str(key), part) for key, part in pairs), key=lambda each: each[1].nbytes)[:_MOST_TENSORS]


def _address_of(tensor: torch.Tensor) -> int | None:
    """Return where the memory begins that a tensor is in; None: it has none, or is made of other tensors."""
    try:
        return tensor.untyped_storage().data_ptr() if _has_values(tensor) else None
    except RuntimeError:
        return None


def _has_values(tensor: torch.Tensor) -> bool:
    is_plain = tensor.layout == torch.strided and not tensor.is_nested
    return is_plain and not is_lazy(tensor) and tensor.device.type != "meta"


def _find(frame: FrameType | None, prepared: Prepared) -> Iterator[tuple[str, Any]]:
    """Yield the modules, and the copies of models, that the program has in variables, by the names of these."""
    known: set[int] = set()
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_INSTALLED):
            for variables in (_variables_of(frame), frame.f_globals):
                for name, value in list(variables.items()):
                    yield from _walk(name, value, known, _DEPTH, prepared)
        frame = frame.f_back


def _variables_of(frame: FrameType) -> dict[str, Any]:
    """Return the variables of a function that runs; none if looking at them would change what its code has."""
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return dict(frame.f_locals)
    # Until Python 3.12 a function has one dict of its variables, which locals() returns, and each look renews it.
    if not _LOCALS.isdisjoint(frame.f_code.co_names):
        return {}
    found = dict(frame.f_locals)
    # Python would keep this dict, and so the tensors in it, until the function ends.
    frame.f_locals.clear()
    return found


def _walk(name: str, value: Any, known: set[int], depth: int, prepared: Prepared) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    is_module = issubclass(kind, torch.nn.Module)
    if id(value) in known or len(known) > _MOST_OBJECTS or not (is_module or _is_of_program(kind)):
        return
    known.add(id(value))
    if is_module or (kind in _CONTAINERS and prepared.is_copied_in(value)):
        yield name, value
    elif depth and id(value) not in prepared.things:
        for inner, part in _parts(name, value):
            yield from _walk(inner, part, known, depth - 1, prepared)


def _is_of_program(kind: type) -> bool:
    """Return whether an object of a class may hold others for the program.

    It is a container, or of a class of the program, or of one whose objects could be prepared.
    """
    if kind in _CONTAINERS:
        return True
    if issubclass(kind, _FOUND_ELSEWHERE):
        return False
    if hasattr(kind, "load_state_dict"):
        return True
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (path is not None and not path.startswith(_INSTALLED))


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    if type(value) not in _CONTAINERS:
        return [(f"{name}.{key}", part) for key, part in getattr(value, "__dict__", {}).items()]
    if len(value) > _MOST_ITEMS:
        return []
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [(f"{name}[{key!r}]", part) for key, part in pairs]
