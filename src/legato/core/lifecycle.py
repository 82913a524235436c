"""The states of a worker and of a job, and for each a table of legal moves. Never decides to move."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from legato.core.errors import TransitionError


class WorkerPhase(enum.StrEnum):
    """The state of a worker, as its driver knows it."""

    STARTING = "starting"  # its process was asked for; it has not said Hello
    JOINING = "joining"  # it said Hello; the program is on its way to its join point
    WARM = "warm"  # at its join point, model built; it may be put into a view
    MEMBER = "member"  # it said Joined: it has the job's state
    LEAVING = "leaving"  # it takes part in nothing any more and ends by itself
    FINISHED = "finished"  # the program ran to its end
    FAILED = "failed"  # the program raised
    FENCED = "fenced"  # it was given up and is being killed; nothing it says counts
    GONE = "gone"  # its process is confirmed gone; its slot is free


class JobState(enum.StrEnum):
    """The state of a job."""

    ADOPTING = "adopting"  # a new driver waits for the running workers to report
    FORMING = "forming"  # no worker has the job's state; the first view is being put together
    TRAINING = "training"
    HOLDING = "holding"  # fewer than min_workers are left; the survivors wait
    FINISHING = "finishing"  # a worker's program ran to its end
    STOPPING = "stopping"
    FAILING = "failing"
    SUCCEEDED = "succeeded"
    UNSAVED = "unsaved"  # the program ran to its end, but its last checkpoint could not be written
    STOPPED = "stopped"
    FAILED = "failed"


_W = WorkerPhase
_J = JobState

_DYING: Final = frozenset({_W.FENCED, _W.GONE})

WORKER_MOVES: Final[Mapping[WorkerPhase, frozenset[WorkerPhase]]] = {
    # Directly to warm, member or finished: a worker that a new driver adopts.
    _W.STARTING: frozenset({_W.JOINING, _W.WARM, _W.MEMBER, _W.FINISHED, _W.LEAVING, _W.FAILED}) | _DYING,
    # Finished without being warm before: a program that does not train.
    _W.JOINING: frozenset({_W.WARM, _W.FINISHED, _W.LEAVING, _W.FAILED}) | _DYING,
    _W.WARM: frozenset({_W.MEMBER, _W.LEAVING, _W.FAILED}) | _DYING,
    _W.MEMBER: frozenset({_W.LEAVING, _W.FINISHED, _W.FAILED}) | _DYING,
    # A worker that was asked to stop may reach the end of its program, or an error, first.
    _W.LEAVING: frozenset({_W.FINISHED, _W.FAILED}) | _DYING,
    _W.FINISHED: frozenset({_W.FAILED}) | _DYING,
    _W.FAILED: _DYING,
    _W.FENCED: frozenset({_W.GONE}),
    _W.GONE: frozenset(),
}

_ENDINGS: Final = frozenset({_J.FINISHING, _J.STOPPING, _J.FAILING})

JOB_MOVES: Final[Mapping[JobState, frozenset[JobState]]] = {
    _J.ADOPTING: frozenset({_J.FORMING, _J.TRAINING}) | _ENDINGS,
    _J.FORMING: frozenset({_J.TRAINING}) | _ENDINGS,
    _J.TRAINING: frozenset({_J.HOLDING, _J.FORMING}) | _ENDINGS,
    _J.HOLDING: frozenset({_J.TRAINING, _J.FORMING}) | _ENDINGS,
    _J.FINISHING: frozenset({_J.SUCCEEDED, _J.UNSAVED, _J.STOPPING, _J.FAILING}),
    # A stop that comes during the last step finds the job finished.
    _J.STOPPING: frozenset({_J.STOPPED, _J.SUCCEEDED, _J.UNSAVED, _J.FAILING}),
    _J.FAILING: frozenset({_J.FAILED}),
    _J.SUCCEEDED: frozenset(),
    _J.UNSAVED: frozenset(),
    _J.STOPPED: frozenset(),
    _J.FAILED: frozenset(),
}

ENDED: Final = frozenset({_J.SUCCEEDED, _J.UNSAVED, _J.STOPPED, _J.FAILED})

_S = TypeVar("_S", bound=enum.StrEnum)


def check_move(who: str, table: Mapping[_S, frozenset[_S]], old: _S, new: _S, story: Iterable[str]) -> None:
    """Raise TransitionError, with the history of ``who``, unless the table has the move.

    >>> check_move("worker 3", WORKER_MOVES, WorkerPhase.WARM, WorkerPhase.MEMBER, [])
    """
    if new not in table[old]:
        told = "\n  ".join(story) or "(nothing happened yet)"
        raise TransitionError(
            f"Cannot move {who} from {old} to {new}: there is no such transition. Its history:\n  {told}"
        )
