"""The file ``agents.json`` of a job: its machines, and the workers that may run on them, for the job's next driver."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from legato.core.errors import LegatoError
from legato.engines.parent import write_private
from legato.system.decoding import decode

_log = logging.getLogger(__name__)


class NodeRecord(msgspec.Struct):
    """What the next driver needs to know of a machine.

    Args:
        devices: of its slots.
        workers: worker → pid of workers that may run.
        identity: of the agent that was used last, and that alone knows of these workers; "": unknown, because an
            earlier release wrote the record.
        shifts: worker → see `legato.engines.agent_logs`; of the workers that run, and of the last ones that have ended.
        work: the folder in which workers run, if only the machine has it and its files travel; "": they do not.
        had_rank_0: rank 0 has run there.
    """

    devices: tuple[str, ...] = ()
    workers: dict[int, int] = {}
    identity: str = ""
    shifts: dict[int, int] = {}
    work: str = ""
    had_rank_0: bool = False


class AgentsRecord(msgspec.Struct):
    """The file ``agents.json``.

    Args:
        secret: the token of the job's agents.
        nodes: by name, in the order in which they are used.
        mark: part of the name of a file in the directory of checkpoints.
        port: on which the job's driver listens; 0: unknown.
        certificate: of the job's driver (PEM). "": unknown.
        rank_0: the machine of rank 0. "": unknown.
    """

    secret: str
    nodes: dict[str, NodeRecord] = {}
    mark: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))
    port: int = 0
    certificate: str = ""
    rank_0: str = ""

    def note_rank_0(self, node: str) -> bool:
        """Note the machine of rank 0; returns whether it is another one than before."""
        if node == self.rank_0 or node not in self.nodes:
            return False
        self.rank_0, self.nodes[node].had_rank_0 = node, True
        return True


def read_record(path: Path) -> AgentsRecord | None:
    """Return the record; None if there is none. Raises LegatoError if it cannot be read."""
    try:
        return decode(path.read_bytes(), AgentsRecord)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LegatoError(
            f"Cannot read {path}: {error}. It tells which machines run workers of the job: "
            "end them by hand, then remove the file."
        ) from error


def write_record(path: Path, record: AgentsRecord) -> None:
    """Replace the record, also on disk: workers on other machines survive a power loss of this one."""
    write_private(path, msgspec.json.encode(record), is_durable=True)


class RecordFile:
    """The record and its file. Any thread may write it.

    Args:
        path: of the file.
        may_write: returns False if another driver writes the file now; called before each write.

    Attributes:
        record: the record.
        is_written: the file has all of it.
    """

    def __init__(self, path: Path, may_write: Callable[[], bool]) -> None:
        self._path = path
        self._may_write = may_write
        self._writing = threading.Lock()
        self.record = AgentsRecord(secrets.token_urlsafe(32))
        self.is_written = True

    def read(self) -> None:
        """Take the record of an earlier driver, if there is one."""
        self.record = read_record(self._path) or self.record

    def write(self) -> None:
        """Write what the next driver must know. Raises OSError."""
        with self._writing:
            self.is_written = False
            if self._may_write():
                write_record(self._path, self.record)
            self.is_written = True

    def write_soon(self) -> None:
        """Write what the next driver should know; on a full disk, later. It can do without that."""
        try:
            self.write()
        except OSError as error:
            _log.warning("Cannot write %s, which is tried again: %s", self._path, error)

    def remove(self) -> None:
        """Remove the file, because the job has ended."""
        self._path.unlink(missing_ok=True)
