"""Every error that Legato raises, on one page. Decides nothing.

LegatoError
├── UsageError (ValueError)      what the user asked for cannot be done; says what to do
│   ├── LayoutError              batch sizes, workers and micro-batches do not fit together
│   ├── ProgramError             the program breaks a rule of the elastic loop
│   ├── DataError                the data set or a batch of it cannot be used
│   └── JobNotFound              no such job, or it is not running
├── MismatchError                workers of one job run different programs or data
├── CheckpointError              a checkpoint is torn, foreign, or cannot be written
├── TransitionError              a state machine was asked for an illegal move; tells its story
└── BrokenView                   a peer died or hung inside a collective; handled inside Legato
"""

from __future__ import annotations


class LegatoError(Exception):
    """Base of every error that Legato raises on purpose."""


class UsageError(LegatoError, ValueError):
    """What was asked for cannot be done as asked; the message says what to do instead."""


class LayoutError(UsageError):
    """Batch sizes, micro-batches or worker counts do not fit together."""


class ProgramError(UsageError):
    """The training program breaks a rule of the elastic loop."""


class DataError(UsageError):
    """The data set, or one batch of it, cannot be used."""


class JobNotFound(UsageError):
    """There is no such job on this machine, or it is not running."""


class MismatchError(LegatoError):
    """Workers of one job run different programs, models or data sets."""


class CheckpointError(LegatoError):
    """A checkpoint is torn, belongs to something else, or cannot be written."""


class TransitionError(LegatoError):
    """A state machine was asked for a move that its table does not have."""


class BrokenView(LegatoError):
    """A collective of the current view failed: a peer died, hung, or was fenced."""
