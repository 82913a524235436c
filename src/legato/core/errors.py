"""Every error that Legato raises, on one page. Decides nothing.

LegatoError
├── UsageError (ValueError)      a request of the user is not possible; says what to do
│   ├── LayoutError              batch sizes, workers and micro-batches do not fit together
│   ├── BadField                 one field of a request has an invalid value
│   ├── ProgramError             the program breaks a rule of the elastic loop
│   ├── DataError                the data set or a batch of it cannot be used
│   ├── JobNotFound              no such job, or it is not running
│   ├── JobDriven                another driver has the job
│   ├── NotFound                 it does not exist on the platform, or the user may not see it
│   ├── Conflict                 it conflicts with the current state
│   │   ├── StaleVersion         it was changed since the user read it
│   │   ├── InFlight             the same request is still in progress
│   │   └── UnreadableRow        this release cannot read its row in the store
│   ├── KeyReused                an idempotency key came again with another request
│   ├── Unauthenticated          a password or token is unknown, expired or revoked
│   ├── Forbidden                the user is authenticated, but may not do this
│   └── SettingsError            a setting is unknown or unusable
├── MismatchError                workers of one job run different programs or data
├── CheckpointError              a checkpoint is torn, foreign, or cannot be written
├── TransitionError              an illegal move of a state machine; has its history
├── StoreError                   the database cannot be reached or is of another version
├── TrainingFailed               a job ended without a trained model
├── FencedOut                    a write of a control loop whose lease another one has taken over
├── Superseded                   another driver leads the job; its workers train on
├── SlotTaken                    a slot has another owner, or is not usable
├── ServerError                  the server had an internal error, or its answer is not understood
│   └── Unavailable              it cannot be reached, or cannot answer now
└── BrokenView                   a peer died or hung inside a collective; handled inside Legato
"""

from __future__ import annotations


class LegatoError(Exception):
    """Base of every error that Legato raises on purpose."""


class UsageError(LegatoError, ValueError):
    """The request is not possible; the message says what to do instead."""


class NoSystemUser(UsageError):
    """The machine knows no system user of a name; also if the directory of users does not answer now."""


class MachinesRefused(UsageError):
    """No machine can run a job.

    Args:
        message: for people.
        refusals: each machine, and why it cannot, as a part of a sentence.
    """

    def __init__(self, message: str, refusals: dict[str, str]) -> None:
        super().__init__(message)
        self.refusals = refusals


class LayoutError(UsageError):
    """Batch sizes, micro-batches or worker counts do not fit together."""


class BadField(UsageError):
    """One field of a request has an invalid value.

    Args:
        field: its name.
        message: a whole sentence that says what to do.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class ProgramError(UsageError):
    """The training program breaks a rule of the elastic loop."""


class DataError(UsageError):
    """The data set, or one batch of it, cannot be used."""


class UnpackingError(UsageError):
    """An archive cannot be unpacked; the message says which entry and what to do."""


class JobNotFound(UsageError):
    """There is no such job on this machine, or it is not running."""


class JobDriven(UsageError):
    """Another driver has the job, so the job runs."""


class NotFound(UsageError):
    """It does not exist on the platform, or the user may not see it."""


class Conflict(UsageError):
    """The request conflicts with the current state."""


class StaleVersion(Conflict):
    """The object was changed since the user read it."""


class InFlight(Conflict):
    """A request with the same idempotency key is still in progress."""


class UnreadableRow(Conflict):
    """This release cannot read the object's row in the store, so it changes nothing there."""


class KeyReused(UsageError):
    """An idempotency key came again with another request."""


class Unauthenticated(UsageError):
    """The password or token is unknown, expired or revoked."""


class Forbidden(UsageError):
    """The user is authenticated, but may not do this."""


class SettingsError(UsageError):
    """A setting is unknown or unusable."""


class MismatchError(LegatoError):
    """Workers of one job run different programs, models or data sets."""


class CheckpointError(LegatoError):
    """A checkpoint is torn, belongs to something else, or cannot be written."""


class TransitionError(LegatoError):
    """A move that the table of a state machine does not have."""


class StoreError(LegatoError):
    """The platform's database cannot be reached, or its tables are of another version."""


class TrainingFailed(LegatoError):
    """A job has ended without a trained model."""


class FencedOut(LegatoError):
    """A control loop wrote with the number of a lease that another one has taken over; nothing was stored."""


class Superseded(LegatoError):
    """Another driver leads the job, or will: this one has stopped, and the workers train on."""


class SlotTaken(LegatoError):
    """A slot has another owner, or is not usable; nothing was stored."""


class ServerError(LegatoError):
    """The server had an internal error, or a client does not understand its answer."""


class Unavailable(ServerError):
    """The server cannot be reached, or cannot answer now; repeat the request later."""


class BrokenView(LegatoError):
    """A collective of the current view failed: a peer died, hung, or was fenced."""
