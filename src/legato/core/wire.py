"""The messages between a driver, its workers and its clients. Data only; sends nothing.

One websocket per worker and one per client; every frame is one MessagePack-encoded message. Every message between
driver and worker carries ``view``, the number of the view its sender was in (0 before the first): a receiver drops
messages about a view older than its own where that matters.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from legato.core.errors import ProgramError
from legato.core.view import View

PROTOCOL: Final = 1
"""The number of the protocol between driver and workers. Raise it when a release changes what a message means.

A release works together with the releases of the same and of the neighbouring numbers. 0: releases whose messages name
no number.
"""


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of every message between a driver and a worker."""

    view: int = 0


# ---------------------------------------------------------------- worker → driver


class Hello(Message, frozen=True):
    """First message on every connection, also after a reconnection to a new driver.

    Args:
        worker: the worker's number.
        pid: its process id on ``host``.
        host: the address at which peers reach it.
        current: the view it is in, or None before its first.
        phase: state of the worker (a ``WorkerPhase`` value: joining, warm, member, finished).
        num_rounds: number of rounds whose result it has.
        node: the nonce of its node, as in `Member`.
        term: the highest term of a driver that it has seen; 0: none, or the worker runs an earlier release.
        protocol: `PROTOCOL` of its release.
        proves: it can prove to its peers that it belongs to the job, with the ``peer_secret`` of `Welcome`.
        eases_in: it knows `View.newcomers`; False: the worker runs an earlier release.
        boot: the id of its machine's boot; "": unknown, or the worker runs an earlier release.
    """

    worker: int
    pid: int
    host: str
    current: View | None
    phase: str
    num_rounds: int
    node: str = ""
    term: int = 0
    protocol: int = 0
    proves: bool = False
    eases_in: bool = False
    boot: str = ""


class Warm(Message, frozen=True):
    """The worker waits at its join point with all imports done and its model built; it may be proposed for a view.

    Args:
        fingerprint: what must be equal in all workers: part name → digest.
        num_micro_batches: of every full step; more workers than this do not help. None: any number of workers helps.
        shares_freely: each step is divided among all workers, so each worker up to ``num_micro_batches`` helps.
    """

    fingerprint: dict[str, str]
    num_micro_batches: int | None = None
    shares_freely: bool = False


class Prepared(Message, frozen=True):
    """The worker has built the process group of ``prepared`` and votes for it from now on."""

    prepared: int


class Unbuilt(Message, frozen=True):
    """The worker could not connect to the other members of view ``failed``; it waits for another view.

    Args:
        failed: number of the view.
        reason: a part of a sentence.
        peer: the worker that it could not connect to. None: unknown.
    """

    failed: int
    reason: str
    peer: int | None = None


class Joined(Message, frozen=True):
    """The worker is in view ``view`` and has the job's state. Incumbents send it too.

    Args:
        num_rounds: number of rounds whose result it has.
        pause_s: how long its training waited for this change.
    """

    num_rounds: int
    pause_s: float


class Broken(Message, frozen=True):
    """A collective of view ``view`` failed; the worker has dropped the group and waits for the next view."""

    num_rounds: int
    reason: str


class StepLoss(msgspec.Struct, frozen=True, array_like=True):
    """The mean loss of a committed step. ``age_s``: seconds from the commit until the message was sent."""

    step: int
    epoch: int
    age_s: float
    loss: float


class Progress(Message, frozen=True):
    """Steps ``first_step .. last_step`` (numbered from 1) are committed.

    Args:
        epoch: of the last step, from 0.
        loss: mean loss of the last step, None if the program does not note it.
        num_samples: samples of all these steps; 0 if the report is a repetition, after a resume or for the phase.
        resumed: the job continued from a checkpoint of ``last_step``.
        num_steps: all steps of the job if known, else None.
        num_epochs: all epochs of the job if known, else None.
        phase: ``train`` or ``evaluate``.
        differed_step: the step after which the result was first found to depend on the workers; None: never.
        losses: of steps that this worker has committed, in order. The driver may have some of them already.
        sent_bytes: that this worker sent to workers of other nodes for the gradients of all these steps.
        measured_s: seconds of those of these steps of which the worker knows how long it waited for data. 0: none, or
            the worker runs an earlier release.
        waited_s: how many of these it waited for data.
    """

    first_step: int
    last_step: int
    epoch: int
    loss: float | None
    num_samples: int
    num_steps: int | None
    num_epochs: int | None
    phase: str = "train"
    resumed: bool = False
    differed_step: int | None = None
    losses: tuple[StepLoss, ...] = ()
    sent_bytes: int = 0
    measured_s: float = 0.0
    waited_s: float = 0.0


class Metrics(Message, frozen=True):
    """The metrics of a call of ``run.log``. ``index`` counts the calls of a job, so that each is recorded once."""

    index: int
    step: int
    epoch: int
    values: dict[str, float]


class Saved(Message, frozen=True):
    """A checkpoint is on disk."""

    step: int
    path: str


class Unsaved(Message, frozen=True):
    """No checkpoint of a step could be written; another message, a `Note`, says why."""

    step: int


COST_ADVICE: Final = "Legato itself takes"
"""The first words of a `Note` about what micro-batches cost: `legato explain` finds the note by them."""


DATA_ADVICE: Final = "Waiting for data takes"
"""The first words of a `Note` about steps that wait long for data, likewise."""

NOTABLE_WAIT: Final = 0.3
"""The part of a step from which on waiting for data is worth a sentence."""


class Note(Message, frozen=True):
    """A message for the user. ``level`` is ``info``, ``warning`` or ``error``."""

    level: str
    text: str


class Differed(Message, frozen=True):
    """The workers hold different states after ``step``, or computed different gradients; all of them send this.

    Args:
        text: what differs and what usually causes it; several lines.
    """

    step: int
    text: str


class Leaving(Message, frozen=True):
    """The worker leaves without an error and exits with 0 next.

    Args:
        num_rounds: number of rounds whose result it has.
        reason: ``shrunk``, ``stopped``, ``orphaned``, or ``superseded`` if the job continues in a view without this
            worker, or from a position that only a new process can reach.
    """

    num_rounds: int
    reason: str


class Finished(Message, frozen=True):
    """The user's program ran to its end.

    Args:
        trained: the program began a run, or declared that it does without one.
    """

    num_rounds: int
    trained: bool


class Failed(Message, frozen=True):
    """The user's program raised.

    Args:
        error: the last line of the traceback.
        traceback: the complete traceback.
        exit_code: what the process exits with next.
        mismatch: True if only this worker is wrong (it runs another program or data set than the others).
    """

    error: str
    traceback: str
    exit_code: int
    mismatch: bool = False


class Heartbeat(Message, frozen=True):
    """Both ways: the sender is alive.

    Args:
        num_rounds: of a worker: number of rounds whose result it has.
        num_metrics: of a driver: how many calls of ``run.log``, counted from the first of the job, are in its records;
            workers need not keep these.
        losses_to_step: of a driver: its records have the losses up to this step; workers need not keep these.
        is_waiting: of a worker: its program waits for other workers or for the driver. None: the worker runs an earlier
            release, whose heartbeats do not say that.
        is_independent: of a worker: its program works without Legato's training, such as a plain command.
    """

    num_rounds: int = 0
    num_metrics: int = 0
    losses_to_step: int = 0
    is_waiting: bool | None = None
    is_independent: bool = False


# ---------------------------------------------------------------- driver → worker


class Welcome(Message, frozen=True):
    """The answer to Hello: the settings of the job that a worker needs.

    Args:
        heartbeat_interval_s: send a heartbeat this often.
        away_limit_s: without a message from a driver for this long, save a checkpoint and exit.
        collective_limit_s: workers of an earlier release give up a collective after this long, and cannot read a
            message without this field; others wait until the driver ends their wait.
        checkpoint_dir: directory of checkpoints, None for no checkpoints.
        checkpoint_every: ``100steps``, ``2epochs``, ``60s`` or None for the final one only.
        keep: how many checkpoints to keep.
        resume: start from the newest checkpoint in ``checkpoint_dir`` if there is one.
        term: of the driver. A worker that has seen a higher one ignores this driver; 0: a driver of an earlier release.
        protocol: `PROTOCOL` of the driver's release.
        peer_secret: by it the workers of the attempt prove to one another that they belong to the job; "": the driver
            runs an earlier release.
    """

    heartbeat_interval_s: float
    away_limit_s: float
    checkpoint_dir: str | None
    checkpoint_every: str | None
    keep: int
    resume: bool
    collective_limit_s: float = 1800.0
    term: int = 0
    protocol: int = 0
    peer_secret: str = ""


class Prepare(Message, frozen=True):
    """Build the group of ``proposed`` in the background and vote for it. A newer proposal replaces an older one."""

    proposed: View


class Recover(Message, frozen=True):
    """Give up the current round at once and continue in ``proposed``. A worker that is not a member exits."""

    proposed: View
    reason: str


class Hold(Message, frozen=True):
    """Too few workers are left: wait for a view; if ``save``, write a checkpoint first."""

    save: bool
    reason: str


class Stop(Message, frozen=True):
    """End the training after the current step: save a checkpoint, exit with 0."""

    reason: str


class Refused(Message, frozen=True):
    """This worker may not take part; it exits without touching anything.

    Args:
        term: of the driver, because a Welcome may not have come before; a worker that has seen a higher one ignores it.
    """

    reason: str
    term: int = 0


WorkerMessage = (
    Hello
    | Warm
    | Prepared
    | Unbuilt
    | Joined
    | Broken
    | Progress
    | Metrics
    | Saved
    | Unsaved
    | Note
    | Differed
    | Leaving
    | Finished
    | Failed
    | Heartbeat
)
DriverMessage = Welcome | Prepare | Recover | Hold | Stop | Refused | Heartbeat


# ---------------------------------------------------------------- client ↔ driver


class Request(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of the requests of a client (``legato status|scale|stop``) to a driver."""


class StatusRequest(Request, frozen=True):
    """Ask for the job's status."""


class ScaleRequest(Request, frozen=True):
    """Ask for another number of workers."""

    num_workers: int
    reason: str = "asked by legato scale"


class AssignRequest(Request, frozen=True):
    """Set all slots of the job from now on. A repeated request with the same slots changes nothing.

    Args:
        slots: at least ``min_workers``, at most ``max_workers``. Numbers: of the driver's machine, because a server or
            a driver of an earlier release knows no names.
        min_workers: new minimum; None: as before.
        max_workers: new maximum; None: as before.
    """

    slots: tuple[int | str, ...]
    reason: str
    min_workers: int | None = None
    max_workers: int | None = None


class StopRequest(Request, frozen=True):
    """Ask the job to stop; ``now`` kills the workers without a checkpoint."""

    now: bool = False
    reason: str = "asked by legato stop"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's answer to one request: ``error`` is None if it was carried out.

    Args:
        status: the job's status after the request, as documented in ``docs/cli.md``.
    """

    error: str | None = None
    status: dict[str, Any] = {}


ClientRequest = StatusRequest | ScaleRequest | AssignRequest | StopRequest

MAX_FRAME_BYTES: Final = 16 * 2**20  # a traceback or a large dictionary of metrics; never a tensor
MAX_TEXT_LENGTH: Final = 2**20
_M = TypeVar("_M", bound=Message)

_encoder: Final = msgspec.msgpack.Encoder()
_worker_decoder: Final[msgspec.msgpack.Decoder[WorkerMessage]] = msgspec.msgpack.Decoder(WorkerMessage)
_driver_decoder: Final[msgspec.msgpack.Decoder[DriverMessage]] = msgspec.msgpack.Decoder(DriverMessage)
_request_decoder: Final[msgspec.msgpack.Decoder[ClientRequest]] = msgspec.msgpack.Decoder(ClientRequest)
_reply_decoder: Final = msgspec.msgpack.Decoder(Reply)


def describe_misfit(whose: str, protocol: int) -> str | None:
    """Describe why this release cannot work with a release of another protocol number; None: it can.

    Args:
        whose: the other side, such as ``worker 3``.
        protocol: its number.

    >>> describe_misfit("worker 3", PROTOCOL - 1), describe_misfit("worker 3", PROTOCOL + 1)
    (None, None)
    """
    if abs(protocol - PROTOCOL) <= 1:
        return None
    return (
        f"{whose} runs a release of Legato whose protocol has number {protocol}; this one has number {PROTOCOL}, and "
        "only neighbouring numbers work together. Install the same release of Legato on all machines of the job"
    )


def sendable(message: _M) -> _M:
    """Return a message in a form that can be sent, whatever texts of a program it contains.

    Characters that cannot be encoded become escapes, and the middle of a long text is left out.

    Raises:
        ProgramError: the message is still larger than a frame.
    """
    values = {name: getattr(message, name) for name in message.__struct_fields__}
    changes = {name: new for name, value in values.items() if (new := _repaired(value)) is not value}
    message = msgspec.structs.replace(message, **changes) if changes else message
    num_bytes = len(encode(message))
    if num_bytes > MAX_FRAME_BYTES:
        raise ProgramError(
            f"A message of {num_bytes} bytes ({type(message).__name__}) is too large for the driver, which takes "
            f"{MAX_FRAME_BYTES}. Log fewer values at once."
        )
    return message


def _repaired(value: Any) -> Any:
    if isinstance(value, dict):
        changed = {_repaired(key): _repaired(inner) for key, inner in value.items()}
        return value if changed == value else changed
    if not isinstance(value, str):
        return value
    if len(value) > MAX_TEXT_LENGTH:
        half = MAX_TEXT_LENGTH // 2
        left_out = f"\n… {len(value) - 2 * half} characters are left out here …\n"
        value = value[:half] + left_out + value[-half:]
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()


def encode(message: Message | Request | Reply) -> bytes:
    """Encode any message as one frame."""
    return _encoder.encode(message)


def decode_worker_message(frame: bytes) -> WorkerMessage:
    """Decode a message of a worker. Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _worker_decoder.decode(frame)


def decode_driver_message(frame: bytes) -> DriverMessage:
    """Decode a message of a driver to a worker. Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _driver_decoder.decode(frame)


def decode_request(frame: bytes) -> ClientRequest:
    """Decode a client's request. Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _request_decoder.decode(frame)


def decode_reply(frame: bytes) -> Reply:
    """Decode a driver's answer to a client. Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _reply_decoder.decode(frame)
