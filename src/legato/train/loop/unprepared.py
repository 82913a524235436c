"""Finds modules that a program's loop changes and Legato does not transfer, because it did not prepare them.

It looks at the variables of the program where the program calls Legato, so it finds what most programs have, not all
that may exist. Never changes an object.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
import weakref
from collections.abc import Container, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy

from legato.train import torch_private
from legato.train.state.checksums import checksums

_INSTALLED: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    | {str(Path(__file__).parents[2]), "<frozen "}
)
_CONTAINERS: Final = (dict, list, tuple)
_LOCALS: Final = frozenset({"locals", "vars", "dir", "eval", "exec", "f_locals"})
_MOST_ITEMS: Final = 64
_MOST_OBJECTS: Final = 4096
_MOST_TENSORS: Final = 16
_MOST_WARNINGS: Final = 8
_DEPTH: Final = 3
_Sums = tuple[weakref.ref[torch.nn.Module], dict[str, int]]


class Unprepared:
    """What the program has in its variables besides the objects that it has prepared. Warns once of each.

    Args:
        device: of the job.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._modules: dict[str, _Sums] = {}
        self._named: set[str] = set()

    def find_changed_modules(self, frame: FrameType | None, prepared: Container[int]) -> list[str]:
        """Return a warning for each module that was not prepared and has changed since an earlier call.

        Args:
            frame: called by the program.
            prepared: the ids of the parameters and buffers of the prepared models.
        """
        warnings: list[str] = []
        if len(self._named) >= _MOST_WARNINGS:
            return warnings
        before, self._modules = self._modules, {}
        for name, module in _find(frame):
            sums = checksums(_tensors_of(module, prepared), self._device)
            self._modules[name] = weakref.ref(module), sums
            if name in self._named or name not in before or before[name][0]() is not module:
                continue
            changed = next((key for key, total in before[name][1].items() if sums.get(key, total) != total), None)
            if changed is not None:
                self._named.add(name)
                warnings.append(
                    f"Training changes {changed} of {name} ({type(module).__name__}), which was not given to "
                    "run.prepare. A worker that joins, and a job that resumes, continue with the values that their "
                    "program gives it at the start, so the result may depend on the workers. Pass it to "
                    "run.prepare(...), and change it under `if run.stepped:`; the average of a model, and any other "
                    "copy that gets no gradients, with requires_grad_(False). For a metric that counts, take run.note."
                )
        return warnings


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


def _has_values(tensor: torch.Tensor) -> bool:
    return not is_lazy(tensor) and tensor.layout == torch.strided and tensor.device.type != "meta"


def _find(frame: FrameType | None) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that the program has in variables, by the names of these."""
    known: set[int] = set()
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_INSTALLED):
            for variables in (_variables_of(frame), frame.f_globals):
                for name, value in list(variables.items()):
                    yield from _walk(name, value, known, _DEPTH)
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


def _walk(name: str, value: Any, known: set[int], depth: int) -> Iterator[tuple[str, torch.nn.Module]]:
    kind = type(value)
    is_found = issubclass(kind, torch.nn.Module)
    if id(value) in known or len(known) > _MOST_OBJECTS or not (is_found or _is_of_program(kind)):
        return
    known.add(id(value))
    if is_found:
        yield name, value
    elif depth:
        for inner, part in _parts(name, value):
            yield from _walk(inner, part, known, depth - 1)


def _is_of_program(kind: type) -> bool:
    """Return whether an object of a class may hold others for the program: it is a container, or of its own class."""
    if kind in _CONTAINERS:
        return True
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (path is not None and not path.startswith(_INSTALLED))


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    if type(value) not in _CONTAINERS:
        return [(f"{name}.{key}", part) for key, part in getattr(value, "__dict__", {}).items()]
    if len(value) > _MOST_ITEMS:
        return []
    pairs = value.items() if type(value) is dict else enumerate(value)
    return [(f"{name}[{key!r}]", part) for key, part in pairs]
