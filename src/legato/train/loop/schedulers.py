"""Finds learning-rate schedulers that a program did not pass to Legato, by their optimizer. Steps none of them."""

from __future__ import annotations

import gc
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from legato.train import torch_private


def find_schedulers(optimizer: Any) -> list[Any]:
    """Return the schedulers of an optimizer, in the same order in every worker; those that are parts of others not.

    Args:
        optimizer: of which they are; those of others are theirs.
    """
    kinds = (LRScheduler, ReduceLROnPlateau)
    owners = {id(owner): owner for owner in _owners_of(optimizer) if issubclass(type(owner), kinds)}
    found = [scheduler for scheduler in owners.values() if getattr(scheduler, "optimizer", None) is optimizer]
    parts = {id(part) for scheduler in found for part in torch_private.schedulers_in(scheduler)}
    whole = [scheduler for scheduler in found if id(scheduler) not in parts]
    return sorted(whole, key=lambda scheduler: (type(scheduler).__qualname__, _told(scheduler.state_dict())))


def _owners_of(thing: Any) -> list[Any]:
    """Return the objects that hold a thing, also in an attribute. The collector searches far faster than a loop."""
    holders = gc.get_referrers(thing)
    attributes = [holder for holder in holders if type(holder) is dict]
    return [*holders, *gc.get_referrers(*attributes)]


def _told(value: Any) -> str:
    """Return a text of a state that is the same in every process: objects are no more than their type in it."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, dict):
        # In the order in which it was made: its own settings come before what other schedulers have changed already.
        # "step" stands in for a method.
        return ", ".join(f"{_told(name)}: {_told(part)}" for name, part in value.items() if name != "step")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_told, value))}]"
    return type(value).__qualname__
