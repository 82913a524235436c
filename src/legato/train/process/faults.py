"""Injects faults for tests: kills or stops this worker at a given moment.

``LEGATO_FAULTS`` holds comma-separated ``WORKER@STEP:PHASE=ACTION``; for example ``3@120:reduce=kill`` sends SIGKILL to
worker 3 in the reduction of step 120, ``2@50:forward=stop`` stops worker 2 (SIGSTOP). Phases: ``forward``, ``reduce``,
``commit`` (between the reduction and the optimizer), ``transfer``, ``checkpoint``. Without the variable nothing
happens.
"""

from __future__ import annotations

import os
import signal
from typing import Final

_ACTIONS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_planned: dict[str, tuple[int, signal.Signals]] = {}
_now: dict[str, int] = {"step": 0}


def plan(worker: int, text: str) -> None:
    """Read the faults that are planned for one worker.

    >>> plan(3, "3@120:reduce=kill,4@1:forward=stop")
    >>> _planned
    {'reduce': (120, <Signals.SIGKILL: 9>)}
    >>> plan(3, "")
    """
    _planned.clear()
    for fault in filter(None, text.split(",")):
        where, _, action = fault.partition("=")
        place, _, phase = where.partition(":")
        who, _, step = place.partition("@")
        if int(who) == worker:
            _planned[phase] = (int(step), _ACTIONS[action])


def at_step(step: int) -> None:
    """Set the number, from 1, of the step that is being computed."""
    _now["step"] = step


def strike(phase: str) -> None:
    """Carry out a fault that is planned for this moment."""
    if not _planned:
        return
    planned = _planned.get(phase)
    if planned is not None and planned[0] == _now["step"]:
        os.kill(os.getpid(), planned[1])
