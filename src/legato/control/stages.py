"""The stages of a job on the platform, the table of legal moves, and the actions that each stage allows.

Does not decide moves and writes nothing. The store moves jobs after it has checked the table here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from legato.control.roles import Asker, check_may_change
from legato.core.errors import Conflict


class Stage(enum.StrEnum):
    """Where a job is on the platform. Within one attempt, `legato.core.lifecycle` has the driver's finer states."""

    QUEUED = "queued"  # waits for slots: new, after a failed attempt, or paused by the policy
    STARTING = "starting"  # has slots; its driver and the first workers start
    RUNNING = "running"
    PAUSING = "pausing"  # a user asked; the driver writes a checkpoint
    PAUSED = "paused"  # holds no slot, and gets none until a user resumes it
    STOPPING = "stopping"  # a user asked; the driver writes a checkpoint
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


_S = Stage

ENDED: Final = frozenset({_S.SUCCEEDED, _S.FAILED, _S.STOPPED})

# Queries name these stages instead of excluding ended ones: an index finds them, and ended jobs are kept for long.
OPEN: Final = frozenset(Stage) - ENDED

# In these stages a job may hold slots, and has an attempt that has not ended.
HOLDING: Final = frozenset({_S.STARTING, _S.RUNNING, _S.PAUSING, _S.STOPPING})

# The policy makes no decisions on jobs in these stages, and earlier decisions are void.
UNDECIDED: Final = frozenset({_S.PAUSING, _S.PAUSED, _S.STOPPING})

MOVES: Final[Mapping[Stage, frozenset[Stage]]] = {
    # Directly to failed: the job can never be started, because this version does not understand its spec.
    _S.QUEUED: frozenset({_S.STARTING, _S.PAUSED, _S.STOPPED, _S.FAILED}),
    # Back to queued: a retry, or paused by the policy. Directly to an end: the job ended before a report showed it
    # running.
    _S.STARTING: frozenset({_S.RUNNING, _S.QUEUED, _S.PAUSING, _S.STOPPING}) | ENDED,
    # Directly to stopped: a user stopped the driver by hand.
    _S.RUNNING: frozenset({_S.QUEUED, _S.PAUSING, _S.STOPPING}) | ENDED,
    # A job may end by itself while it is being paused or stopped; then it has its own outcome.
    _S.PAUSING: frozenset({_S.PAUSED, _S.STOPPING, _S.SUCCEEDED, _S.FAILED}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.STOPPED}),
    _S.STOPPING: ENDED,
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.STOPPED: frozenset(),
}


class Action(enum.StrEnum):
    """What a user may ask of a job. The value is the verb in the refusal."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RESIZE = "resize"  # changes the minimum and maximum of workers
    PRIORITIZE = "change the priority of"
    MOVE = "move"  # moves the job to another queue
    LABEL = "label"
    NOTE = "change the notes of"


_GOES_ON: Final = frozenset({_S.QUEUED, _S.STARTING, _S.RUNNING, _S.PAUSING, _S.PAUSED})

# The stage after each action; missing pairs are refused. Only the first three actions change the stage.
_LEADS: Final[Mapping[Action, Mapping[Stage, Stage]]] = {
    Action.PAUSE: {_S.QUEUED: _S.PAUSED, _S.STARTING: _S.PAUSING, _S.RUNNING: _S.PAUSING},
    Action.RESUME: {_S.PAUSED: _S.QUEUED},
    Action.STOP: {
        _S.QUEUED: _S.STOPPED,
        _S.PAUSED: _S.STOPPED,
        _S.STARTING: _S.STOPPING,
        _S.RUNNING: _S.STOPPING,
        _S.PAUSING: _S.STOPPING,
        _S.STOPPING: _S.STOPPING,  # again, or at once now
    },
    **{action: {stage: stage for stage in _GOES_ON} for action in (Action.RESIZE, Action.PRIORITIZE, Action.MOVE)},
    **{action: {stage: stage for stage in Stage} for action in (Action.LABEL, Action.NOTE)},
}

_IS: Final[Mapping[Stage, str]] = {
    _S.QUEUED: "it is queued",
    _S.STARTING: "it is starting",
    _S.RUNNING: "it is running",
    _S.PAUSING: "it is being paused",
    _S.PAUSED: "it is paused",
    _S.STOPPING: "it is being stopped",
    _S.SUCCEEDED: "it has succeeded",
    _S.FAILED: "it has failed",
    _S.STOPPED: "it was stopped",
}


def stage_after(action: Action, name: str, stage: Stage) -> Stage:
    """Return the stage of the job ``name`` after an action; the same stage if the action does not move the job.

    Raises:
        Conflict: the stage does not allow this action; the message names the stage and says what to do.

    >>> str(stage_after(Action.PAUSE, "mnist", Stage.RUNNING))
    'pausing'
    """
    after = _LEADS[action].get(stage)
    if after is None:
        raise Conflict(f"Cannot {action} job '{name}': {_IS[stage]}. {_remedy(action, stage)}")
    return after


def check_ask(action: Action, name: str, owner: str, stage: Stage, asker: Asker) -> Stage:
    """Check that the asker may change the job and that its stage allows the action; return the stage after it.

    Raises:
        Forbidden: the asker may not change the job.
        Conflict: as `stage_after`.
    """
    check_may_change(action, name, owner, asker)
    return stage_after(action, name, stage)


def _remedy(action: Action, stage: Stage) -> str:
    if action is Action.RESUME:
        if stage in ENDED or stage is _S.STOPPING:
            return "A job that has ended cannot be resumed; clone it or submit it again."
        return "Wait until it is paused." if stage is _S.PAUSING else "Only a paused job can be resumed."
    if stage in ENDED:
        return "It has already ended." if action is Action.STOP else "A job that has ended cannot be changed."
    if stage is _S.STOPPING:
        return "Wait until it has ended."
    if stage is _S.PAUSED:
        return "Resume it first."
    return "Wait until it is paused."
