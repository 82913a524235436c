"""Finds learning-rate schedulers that a program did not pass to Legato, by their optimizer. Steps none of them."""

from __future__ import annotations

import gc
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from legato.train import torch_private


def find_schedulers(optimizer: Any) -> list[Any]:
    """Return the schedulers of an optimizer, in the same order in every worker, without parts of other schedulers.

    Args:
        optimizer: whose schedulers to find; schedulers of other optimizers are left out.
    """
    kinds = (LRScheduler, ReduceLROnPlateau)
    owners = {id(owner): owner for owner in _owners_of(optimizer) if issubclass(type(owner), kinds)}
    found = [scheduler for scheduler in owners.values() if getattr(scheduler, "optimizer", None) is optimizer]
    parts = {id(part) for scheduler in found for part in torch_private.schedulers_in(scheduler)}
    whole = [scheduler for scheduler in found if id(scheduler) not in parts]
    return sorted(whole, key=lambda scheduler: (type(scheduler).__qualname__, _text_of(scheduler.state_dict())))


def _owners_of(thing: Any) -> list[Any]:
    """Return the objects that refer to an object, also in an attribute. The garbage collector finds them fastest."""
    holders = gc.get_referrers(thing)
    attributes = [holder for holder in holders if type(holder) is dict]
    return [*holders, *gc.get_referrers(*attributes)]


def _text_of(value: Any) -> str:
    """Return a text of a state that is the same in every process: an object appears as its type only."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, dict):
        # In the order of creation: a scheduler's own settings come before values that other schedulers have changed
        # already.
        return ", ".join(f"{_text_of(name)}: {_text_of(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text_of, value))}]"
    return type(value).__qualname__
