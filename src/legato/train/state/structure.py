"""Detects that a program changed its models or optimizers after training began. Fast, because it runs in each step.

Every worker trains the parameters with which training began: a later parameter would not be summed over the workers,
and would be missing in workers that join.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import is_
from typing import Any

import torch

from legato.core.errors import ProgramError
from legato.train import torch_private
from legato.train.reduction.buffers import Slot


class Structure:
    """The modules, parameters and buffers of some models at the time of construction.

    Args:
        models: to watch.
    """

    def __init__(self, models: Sequence[torch.nn.Module]) -> None:
        self._models = tuple(models)
        modules = list({id(module): module for model in models for module in model.modules()}.values())
        parts = (torch_private.parameters_of, torch_private.children_of)
        tables = [part(module) for module in modules for part in parts]
        # Most tables are empty and stay empty: for these a comparison of the lengths is enough.
        self._filled = [table.values() for table in tables if table]
        self._held = list(chain.from_iterable(self._filled))
        # The forward pass may assign another tensor, or None, to a buffer, but it must not register another buffer.
        self._all = [*tables, *map(torch_private.buffers_of, modules)]
        self._num_all = sum(map(len, self._all))
        self._named = self._names()

    def is_same(self) -> bool:
        """Return whether the models still have the same modules and parameters, and the same number of buffers."""
        if sum(map(len, self._all)) != self._num_all:
            return False
        now = list(chain.from_iterable(self._filled))
        return len(now) == len(self._held) and all(map(is_, now, self._held))

    def refuse_changes(self) -> None:
        """Raise ProgramError if parameters or buffers were added, replaced or removed; other modules may change."""
        now = self._names()
        added = [name for name in now if name not in self._named]
        gone = [name for name in self._named if name not in now]
        replaced = [name for name, kept in self._named.items() if name in now and kept is not now[name]]
        told = [
            f"{what}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
            for what, names in (("added", added), ("replaced", replaced), ("removed", gone))
            if names
        ]
        if told:
            raise ProgramError(
                f"Parameters or buffers of a prepared model were changed after training began ({'; '.join(told)}). New "
                "ones would not be summed over the workers, and workers that join build the model as it was. Build all "
                "of the model before run.prepare(...), with requires_grad_(False) on what trains later; set new "
                "values in place, as in `with torch.no_grad(): parameter.copy_(values)`."
            )

    def _names(self) -> dict[str, Any]:
        several = len(self._models) > 1
        found: dict[str, Any] = {}
        for index, model in enumerate(self._models):
            place = f" of model {index} ({type(model).__name__})" if several else ""
            found |= {name + place: parameter for name, parameter in model.named_parameters()}
            found |= {name + place: None for name in slots_of(model)}
        return found


def slots_of(model: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, str]]:
    """Return the places of a model's buffers by name, also of None buffers: each a module and an attribute."""
    return {
        f"{path}.{attribute}" if path else attribute: (module, attribute)
        for path, module in model.named_modules()
        for attribute in torch_private.buffers_of(module)
    }


def buffer_slots(models: Sequence[torch.nn.Module]) -> list[Slot]:
    """Return where some models hold their buffers, each buffer once; each None is a buffer of its own."""
    found: dict[Any, Slot] = {}
    for model in models:
        for name, (module, attribute) in slots_of(model).items():
            table = torch_private.buffers_of(module)
            key = (id(table), attribute) if table[attribute] is None else id(table[attribute])
            slot = found.get(key, Slot(name, (), is_cache=True))
            # A buffer that is part of any state_dict() is no cache.
            is_cache = slot.is_cache and not torch_private.is_persistent(module, attribute)
            is_there = any(other is table and name_there == attribute for other, name_there in slot.holders)
            holders = slot.holders if is_there else (*slot.holders, (table, attribute))
            found[key] = slot._replace(holders=holders, is_cache=is_cache)
    return list(found.values())


class GroupWatch:
    """The parameters in the groups of some optimizers at the time of construction.

    Args:
        optimizers: to watch.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = tuple(optimizers)
        self._held = self._parameters()

    def is_same(self) -> bool:
        """Return whether the groups still have the same parameters."""
        now = self._parameters()
        return len(now) == len(self._held) and all(map(is_, now, self._held))

    def _parameters(self) -> tuple[Any, ...]:
        groups = [group["params"] for optimizer in self._optimizers for group in optimizer.param_groups]
        return tuple(chain.from_iterable(groups))
