"""The messages between a driver and the agents of its job's machines. Data only; sends nothing.

An agent connects to the driver by websocket, path ``/agent``; every frame is one MessagePack-encoded message. The agent
sends `AgentHello` first. A driver repeats requests after a reconnection, and both sides ignore duplicates.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from legato.core.limits import Limits
from legato.core.spec import DEFAULT_LOG_BYTES
from legato.core.system_metrics import SystemSample

AGENT_PROTOCOL: Final = 1
"""The number of this protocol. A driver and an agent whose numbers differ by more than 1 do not work together."""

MAX_LOG_BYTES: Final = 2**16
"""Of a log in one message."""

MAX_PIECE_BYTES: Final = 2**18
"""Of a file in one message."""

MAX_OFFERED: Final = 500
"""Files in one message of an offer."""

Position = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
LogData = Annotated[bytes, msgspec.Meta(max_length=MAX_LOG_BYTES)]
PieceData = Annotated[bytes, msgspec.Meta(max_length=MAX_PIECE_BYTES)]
Told = Annotated[str, msgspec.Meta(max_length=2000)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class AgentEnvelope(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of every message between a driver and an agent."""


# ---------------------------------------------------------------- agent → driver


class AgentHello(AgentEnvelope, frozen=True):
    """First message on every connection.

    Args:
        node: name of the agent's machine: its slots are ``NODE/0``, ``NODE/1``, …
        identity: of the agent; the same after a restart, and of no other agent.
        devices: the device of each slot, as in `legato.engines.gpus`.
        address: at which workers of other machines reach this machine.
        protocol: `AGENT_PROTOCOL` of the agent.
        term: the highest term of a driver that the agent has seen.
        switches_users: it can run workers as another system user; False: also an agent of an earlier release, which
            would run them as its own.
        runs_as: name of its own system user, if jobs of this user may run as it is. "": none may.
        sends_results: it sends the files that the program wrote, and fetches earlier ones, if the driver takes them.
        workers: that run under it.
    """

    node: str
    identity: str
    devices: tuple[str, ...]
    address: str
    protocol: int = AGENT_PROTOCOL
    term: int = 0
    switches_users: bool = False
    runs_as: str = ""
    sends_results: bool = False
    workers: tuple[int, ...] = ()


class Outranked(AgentEnvelope, frozen=True):
    """The agent refuses the driver: a driver of a higher term leads the job."""

    term: int


class Opened(AgentEnvelope, frozen=True):
    """The machine is ready to start workers. Sent on every connection, and when the store has moved.

    Args:
        rendezvous: ``host:port`` of the machine's store.
        workers: those that run, or whose end the driver has not acknowledged.
        shares_checkpoints: the machine sees the driver's directory of checkpoints.
        devices: the device of each slot that workers can be started in; (): those of `AgentHello`.
        newest: the name of the machine's newest checkpoint, which workers may have saved without a driver; "": none, or
            the machine shares the directory of checkpoints.
        work: the folder in which workers run, if it is a copy that only this machine has, and its files travel; "":
            they do not.
    """

    rendezvous: str
    workers: tuple[int, ...]
    shares_checkpoints: bool = True
    devices: tuple[str, ...] = ()
    newest: Told = ""
    work: Told = ""


class OpenRefused(AgentEnvelope, frozen=True):
    """The job cannot run on this machine; ``reason`` is a sentence."""

    reason: str


class WorkerEvent(AgentEnvelope, frozen=True):
    """A worker was started, or has ended.

    Args:
        number: of this event; sent again until the driver acknowledges it.
        worker: number of the worker.
        pid: of the started worker.
        exit_code: of a worker that has certainly ended; None: it was started.
        reason: of the end, if the agent knows more than the exit code.
    """

    number: int
    worker: int
    pid: int = 0
    exit_code: int | None = None
    reason: str = ""


class Remark(AgentEnvelope, frozen=True):
    """A message for the job's user, without its period. ``number`` as in `WorkerEvent`."""

    number: int
    text: str


class Vitals(AgentEnvelope, frozen=True):
    """The answer to `Examine`: worker → state and CPU seconds, as in `legato.system.processes.Vital`."""

    question: int
    found: dict[int, tuple[str, float]]


class LogBytes(AgentEnvelope, frozen=True):
    """New bytes of a worker's log, which begin at ``offset``.

    Args:
        num_lost: of the bytes before ``offset``, the number that were not sent and that the agent no longer has.
    """

    worker: int
    offset: Position
    data: LogData
    num_lost: Position = 0


class WantCheckpoint(AgentEnvelope, frozen=True):
    """A worker resumes: the agent asks for the newest checkpoint, which comes as `FilePiece`, or `NoCheckpoint`.

    Args:
        name: of the checkpoint of which the agent has the first ``num_bytes`` bytes, or all.
        num_bytes: of it.
    """

    name: str = ""
    num_bytes: Position = 0


class CheckpointGone(AgentEnvelope, frozen=True):
    """The machine has no checkpoint of this name any more."""

    name: str


class WantFiles(AgentEnvelope, frozen=True):
    """The agent asks for the files that the program wrote in earlier attempts. The answer is `OfferFiles`."""


class Closed(AgentEnvelope, frozen=True):
    """The answer to `CloseJob`: no process of the job is left on this machine, and all logs were sent."""


# ---------------------------------------------------------------- both ways


class Beat(AgentEnvelope, frozen=True):
    """The agent is alive; the driver answers with the same message.

    Args:
        sent_s: the agent's clock when it sent the message. The agent's lease runs from there, so an answer that
            arrives late does not make the lease longer than the driver believes.
        sample: of an agent: what its machine and the workers use, if there is a new sample.
    """

    sent_s: float
    sample: SystemSample | None = None


class OfferedFile(msgspec.Struct, frozen=True):
    """A file of the program's working directory.

    Args:
        path: from the working directory on.
        num_bytes: its size.
        sha256: of its content.
        base: SHA-256 of the content with which the machine began; "": it began without this file.
    """

    path: Told
    num_bytes: Position
    sha256: Digest
    base: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""


class LeftOut(msgspec.Struct, frozen=True):
    """A file that is not offered, or did not come, and why: a clause without its period."""

    path: Told
    reason: Told


class OfferFiles(AgentEnvelope, frozen=True):
    """A part of the list of files that the other side can fetch: what the program wrote in its working directory.

    An agent offers them after `CloseJob`, and a driver after `WantFiles`.

    Args:
        files: in the order in which they are fetched.
        left_out: some of the files that cannot be fetched.
        num_left_out: the number of all of these.
        odd: some of the paths at which there is no plain file, such as links; they never travel.
        num_odd: the number of all of these.
        is_first: what came of an earlier list is void.
        is_last: the list is complete.
    """

    files: Annotated[tuple[OfferedFile, ...], msgspec.Meta(max_length=MAX_OFFERED)] = ()
    left_out: Annotated[tuple[LeftOut, ...], msgspec.Meta(max_length=MAX_OFFERED)] = ()
    num_left_out: Position = 0
    odd: Annotated[tuple[Told, ...], msgspec.Meta(max_length=MAX_OFFERED)] = ()
    num_odd: Position = 0
    is_first: bool = False
    is_last: bool = False


class FetchFile(AgentEnvelope, frozen=True):
    """Send an offered file from ``offset`` on, and nothing of another one. The answer is `FilePiece` or `FileGone`.

    Args:
        name: its SHA-256, which is also its name in `FilePiece`.
        offset: of the first byte that the receiver does not have.
        is_urgent: False: workers train meanwhile.
    """

    name: Digest
    offset: Position
    is_urgent: bool = True


class FileGone(AgentEnvelope, frozen=True):
    """An offered file cannot be sent; ``reason`` is a clause without its period."""

    name: Digest
    reason: Told


class FilePiece(AgentEnvelope, frozen=True):
    """Bytes of a checkpoint, or of an offered file.

    Args:
        name: of the checkpoint's file, or SHA-256 of the offered file.
        offset: at which the bytes begin.
        data: the bytes. Empty: an empty file, or one of which the receiver has all.
        num_bytes: of the whole file.
        sha256: of the whole file; only in the last piece.
    """

    name: str
    offset: Position
    data: PieceData
    num_bytes: Position
    sha256: str = ""


class FileTaken(AgentEnvelope, frozen=True):
    """The receiver has the first ``num_bytes`` bytes of a file on its disk; ``name`` as in `FilePiece`."""

    name: str
    num_bytes: Position


# ---------------------------------------------------------------- driver → agent


class AgentWelcome(AgentEnvelope, frozen=True):
    """The answer to `AgentHello`.

    Args:
        term: of the driver.
        beat_every_s: the agent sends a `Beat` this often.
        lease_s: the agent kills its workers when the last answered beat is older than this.
        protocol: `AGENT_PROTOCOL` of the driver.
    """

    term: int
    beat_every_s: float
    lease_s: float
    protocol: int = AGENT_PROTOCOL


class AgentRefused(AgentEnvelope, frozen=True):
    """The driver does not use this agent; ``reason`` is a sentence. The agent kills its workers and ends."""

    reason: str


class OpenJob(AgentEnvelope, frozen=True):
    """What the agent needs to start workers of the job. The arguments are those of `LocalEngine`.

    Args:
        environment: the job's variables.
        directory: the working directory of the job. A machine that does not have it uses the copy of its order, or a
            folder of its own with the sources of `Program`.
        copies_program: False: a machine that has neither the directory nor a copy of it is refused.
        data: the directory of the job's data, which each machine must have; "": none.
        package: the folder of the driver's Legato: a program in it is run from the agent's own.
        user: name of the system user of the workers on each machine; "": that of the agent.
        has_earlier: the program may have written files in earlier attempts: ask for them by `WantFiles`.
        start: ``fork`` or ``fresh``.
        entry: ``module:function`` that a worker runs.
        preload: what the warm parent imports before it forks.
        wished: modules that the warm parent also imports.
        limits: of the job on this machine.
        python: the interpreter of the workers; None: the agent's own.
        cpu_capability: the instruction set that the job asks for.
        idle_limit_s: without a driver and workers, the agent ends after this time.
        log_max_bytes: of each log.
        checkpoints: the driver's directory of checkpoints; "": the job has none.
        mark: the name of a file in that directory, by which an agent sees that its machine shares it.
    """

    environment: dict[str, str]
    directory: str
    start: Literal["fork", "fresh"] = "fork"
    entry: str = ""
    preload: tuple[str, ...] | None = None
    wished: tuple[str, ...] = ()
    limits: Limits = Limits()
    python: str | None = None
    cpu_capability: str | None = None
    idle_limit_s: float = 60.0
    log_max_bytes: int = DEFAULT_LOG_BYTES
    checkpoints: str = ""
    mark: str = ""
    copies_program: bool = True
    data: str = ""
    package: str = ""
    user: str = ""
    has_earlier: bool = False


class Program(AgentEnvelope, frozen=True):
    """The sources of the program at the job's start: the content of ``program.json`` in the job's directory."""

    content: bytes


class StartOne(AgentEnvelope, frozen=True):
    """Start a worker; repeated until its end is known.

    Args:
        attempt: names the job's attempt, for the file in which the worker finds the driver's address.
    """

    worker: int
    slot: str
    program: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    attempt: str


class StopOne(AgentEnvelope, frozen=True):
    """Send SIGTERM to a worker, or with ``force`` SIGKILL to it and its children."""

    worker: int
    force: bool


class Acknowledge(AgentEnvelope, frozen=True):
    """The driver has handled all events up to ``number``."""

    number: int


class TookLog(AgentEnvelope, frozen=True):
    """The driver has the first ``num_bytes`` bytes of a worker's log on its disk.

    Args:
        again: it could not write what came after them: send that again.
    """

    worker: int
    num_bytes: Position
    again: bool = False


class SendCheckpoint(AgentEnvelope, frozen=True):
    """Send a checkpoint, from ``offset`` on, and nothing of another one; the answer is `FilePiece` or `CheckpointGone`.

    A sender whose file is shorter begins at 0.

    Args:
        is_urgent: the job waits for it. False: its workers train meanwhile.
    """

    name: str
    offset: Position
    is_urgent: bool = False


class HastenCheckpoint(AgentEnvelope, frozen=True):
    """The job waits for the checkpoint that is being sent: use all of the network for it."""

    name: str


class NoCheckpoint(AgentEnvelope, frozen=True):
    """The answer to `WantCheckpoint`: the job has no checkpoint, or ``error`` says why it cannot be sent."""

    error: str = ""


class Examine(AgentEnvelope, frozen=True):
    """Ask for samples of the processes of workers."""

    question: int
    workers: tuple[int, ...]


class CloseJob(AgentEnvelope, frozen=True):
    """The job has ended: kill its workers, send the rest of their logs, answer `Closed`, and end.

    Args:
        takes_results: before that, offer the files that the program wrote, and wait for `FilesTaken`.
    """

    takes_results: bool = False


class FilesTaken(AgentEnvelope, frozen=True):
    """The driver fetches no more files. With ``num_missing`` above 0, the agent keeps its copies."""

    num_missing: Position = 0


AgentMessage = (
    AgentHello
    | Outranked
    | Opened
    | OpenRefused
    | WorkerEvent
    | Remark
    | Vitals
    | LogBytes
    | WantCheckpoint
    | CheckpointGone
    | WantFiles
    | OfferFiles
    | FetchFile
    | FileGone
    | Closed
    | Beat
    | FilePiece
    | FileTaken
)
AgentRequest = (
    AgentWelcome
    | AgentRefused
    | OpenJob
    | Program
    | StartOne
    | StopOne
    | Acknowledge
    | TookLog
    | SendCheckpoint
    | HastenCheckpoint
    | NoCheckpoint
    | Examine
    | CloseJob
    | OfferFiles
    | FetchFile
    | FileGone
    | FilesTaken
    | Beat
    | FilePiece
    | FileTaken
)

_encoder: Final = msgspec.msgpack.Encoder()
_message_decoder: Final[msgspec.msgpack.Decoder[AgentMessage]] = msgspec.msgpack.Decoder(AgentMessage)
_request_decoder: Final[msgspec.msgpack.Decoder[AgentRequest]] = msgspec.msgpack.Decoder(AgentRequest)


def encode_agent_frame(message: AgentEnvelope) -> bytes:
    """Encode a message between a driver and an agent as one frame."""
    return _encoder.encode(message)


def decode_agent_message(frame: bytes) -> AgentMessage:
    """Decode a message of an agent. Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _message_decoder.decode(frame)


def decode_agent_request(frame: bytes) -> AgentRequest:
    """Decode a message of a driver to an agent. Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _request_decoder.decode(frame)


def as_bytes(frame: str | bytes) -> bytes:
    """Return the content of a frame as bytes."""
    return frame.encode() if isinstance(frame, str) else frame
