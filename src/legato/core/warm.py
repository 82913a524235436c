"""The messages between a local engine and its warm parent, and their files on disk. Data only; sends nothing.

They communicate over a unix socket: every frame is a length of four bytes and one MessagePack-encoded message. The
record is a small JSON file in the job's directory, by which the next process that opens the engine finds the warm
parent and its workers.
"""

from __future__ import annotations

from typing import Final

import msgspec

UNKNOWN_EXIT_CODE: Final = -9
"""Of a worker that ended unseen: whatever ended it, its process is gone."""

MARK_VARIABLE: Final = "LEGATO_ENGINE"
"""Every process of a job has it from its start: the path of the job's record."""

NODE_VARIABLE: Final = "LEGATO_NODE"
"""Of a worker: the nonce of its engine, by which workers know which of them are on one node."""


def mark_of(record_path: str) -> str:
    """Return `MARK_VARIABLE` with its value, as ``NAME=VALUE``.

    >>> mark_of("/jobs/digits/engine.json")
    'LEGATO_ENGINE=/jobs/digits/engine.json'
    """
    return f"{MARK_VARIABLE}={record_path}"


class Entry(msgspec.Struct):
    """One worker in the record, where it stays until a driver has acknowledged its exit.

    Args:
        pid: of its process, which leads its own session and process group.
        start_time: of the process, in clock ticks since boot: pid and start time together identify one process.
        exit_code: of the process; None while it runs.
        told: a driver has acknowledged that it was started.
    """

    pid: int
    start_time: int
    exit_code: int | None = None
    told: bool = False


class Record(msgspec.Struct):
    """The file ``engine.json``.

    Args:
        socket: path of the unix socket, in its own private directory.
        start: ``fork`` or ``fresh``: how workers are started.
        entry: ``module:function`` that a worker runs, with the program and its arguments as one list.
        preload: modules that the warm parent imports before it forks.
        wished: modules that it also imports, unless they make forking unsafe.
        idle_limit_s: the warm parent ends when it had neither a driver nor workers for this long.
        pid: of the warm parent; 0 until it runs.
        start_time: of the warm parent.
        devices: of each slot; empty if all workers are on the CPU, with any number of slots.
        variables: digest of the environment in which the warm parent was started.
        python: the interpreter of the warm parent and its workers; "": that of the engine.
        address: of this machine, at which the store listens.
        boot: identifies the machine's last start; start times of another boot are invalid.
        workers: entries by number of the worker.
        node_nonce: random, the same for all workers that run at the same time; "": their warm parent is of an earlier
            release.
    """

    socket: str
    start: str
    entry: str
    preload: tuple[str, ...]
    wished: tuple[str, ...]
    idle_limit_s: float
    pid: int = 0
    start_time: int = 0
    devices: tuple[str, ...] = ()
    variables: str = ""
    boot: str = ""
    python: str = ""
    address: str = "127.0.0.1"
    workers: dict[int, Entry] = {}
    node_nonce: str = ""


class Envelope(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of every message between an engine and a warm parent."""


# ---------------------------------------------------------------- engine → warm parent


class StartWorker(Envelope, frozen=True):
    """Start a worker; fields as in `legato.engines.base.Launch`. After two requests it is started only once."""

    worker: int
    program: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    log_path: str


class EndWorker(Envelope, frozen=True):
    """Send SIGTERM to a worker, or with ``force`` SIGKILL to its whole process group."""

    worker: int
    force: bool


class AcknowledgeStarted(Envelope, frozen=True):
    """The driver knows that the worker was started."""

    worker: int


class AcknowledgeExited(Envelope, frozen=True):
    """The driver knows that the worker is gone; the record may drop it."""

    worker: int


class EndAll(Envelope, frozen=True):
    """The job is over: kill all workers, clean up, end."""


# ---------------------------------------------------------------- warm parent → engine


class State(Envelope, frozen=True):
    """First message on every connection: worker → pid of the running workers."""

    running: dict[int, int]


class Ready(Envelope, frozen=True):
    """The store listens at ``rendezvous`` (``host:port``); the address changes if the store died."""

    rendezvous: str


class WorkerStarted(Envelope, frozen=True):
    """The worker's process exists."""

    worker: int
    pid: int


class WorkerExited(Envelope, frozen=True):
    """The worker's process is gone, and so is its process group."""

    worker: int
    exit_code: int


class Replaced(Envelope, frozen=True):
    """Another engine has connected; this connection closes."""


EngineMessage = StartWorker | EndWorker | AcknowledgeStarted | AcknowledgeExited | EndAll
ParentMessage = State | Ready | WorkerStarted | WorkerExited | Replaced

_MAX_FRAME_BYTES: Final = 64 * 2**20

_encoder: Final = msgspec.msgpack.Encoder()
_engine_decoder: Final[msgspec.msgpack.Decoder[EngineMessage]] = msgspec.msgpack.Decoder(EngineMessage)
_parent_decoder: Final[msgspec.msgpack.Decoder[ParentMessage]] = msgspec.msgpack.Decoder(ParentMessage)


def encode_frame(message: Envelope) -> bytes:
    """Encode a message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


def decode_engine_message(body: bytes) -> EngineMessage:
    """Decode a message of an engine. Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _engine_decoder.decode(body)


def decode_parent_message(body: bytes) -> ParentMessage:
    """Decode a message of a warm parent. Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _parent_decoder.decode(body)


def take_frames(received: bytearray) -> list[bytes]:
    r"""Remove the complete frames from the front of ``received`` and return their bodies.

    Raises:
        ValueError: a frame is too large. The sender may be a program of a user.

    >>> buffer = bytearray(b"\x00\x00\x00\x02hi\x00\x00")
    >>> take_frames(buffer), bytes(buffer)
    ([b'hi'], b'\x00\x00')
    """
    bodies = []
    while len(received) >= 4:
        end = 4 + int.from_bytes(received[:4], "big")
        if end > _MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {end} bytes; at most {_MAX_FRAME_BYTES} are allowed")
        if len(received) < end:
            break
        bodies.append(bytes(received[4:end]))
        del received[:end]
    return bodies
