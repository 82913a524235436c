"""Finds the learning-rate schedulers of a program, which it hands to nobody: by their optimizer."""

from __future__ import annotations

import gc
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau


def find_schedulers(optimizer: Any) -> list[Any]:
    """Return the schedulers of an optimizer, in the same order in every worker; those that are parts of others not."""
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), LRScheduler | ReduceLROnPlateau)]
    found = [scheduler for scheduler in found if getattr(scheduler, "optimizer", None) is optimizer]
    parts = {id(part) for scheduler in found for part in getattr(scheduler, "_schedulers", ())}
    whole = [scheduler for scheduler in found if id(scheduler) not in parts]
    return sorted(whole, key=lambda scheduler: (type(scheduler).__qualname__, _told(scheduler)))


def _told(scheduler: Any) -> str:
    state = scheduler.state_dict()
    return repr({name: state[name] for name in sorted(state) if isinstance(state[name], bool | int | float | str)})
