"""The process behind the local engine: start a warm parent, end one that does not answer. Speaks to nobody."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from legato.core.errors import LegatoError
from legato.core.warm import UNKNOWN_EXIT_CODE, Record, mark_of
from legato.decoding import decode
from legato.processes import boot_id, is_alive, kill_group, send_signal

_MAX_SOCKET_PATH: Final = 100
"""The kernel takes 107 bytes; some are left for the file's name."""
_NUM_POLLS: Final = 200
_POLL_S: Final = 0.01


def read_record(path: Path) -> Record | None:
    """Return what is known of a warm parent and its workers, None if there is none.

    Raises:
        LegatoError: the file cannot be read.
    """
    try:
        record = decode(path.read_bytes(), Record)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LegatoError(
            f"Cannot read {path}: {error}. It tells which processes belong to the job: "
            "end them by hand, then remove the file."
        ) from error
    if record.boot not in ("", boot_id()):
        # The machine has been started anew since: all of them are gone, whoever has their numbers now.
        record.pid = record.start_time = 0
        for entry in record.workers.values():
            entry.exit_code = UNKNOWN_EXIT_CODE if entry.exit_code is None else entry.exit_code
    return record


def start_parent(
    record: Record, variables: Mapping[str, str], record_path: Path, log_path: Path
) -> subprocess.Popen[bytes]:
    """Start a warm parent on the socket that the record names; it accepts connections from now on."""
    name, _, value = mark_of(str(record_path)).partition("=")
    with socket.socket(socket.AF_UNIX) as listener, log_path.open("ab") as log:
        listener.bind(record.socket)
        listener.listen(16)
        _write_private(record_path, msgspec.json.encode(record))
        return subprocess.Popen(
            [sys.executable, "-m", "legato.train.warm_parent", str(record_path), str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=record_path.parent,
            env={**variables, name: value},
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )


def make_socket_directory() -> Path:
    """Make a private directory whose path is short enough for a socket."""
    path = tempfile.mkdtemp(prefix="legato-")
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        Path(path).rmdir()
        path = tempfile.mkdtemp(prefix="legato-", dir="/tmp")
    return Path(path)


def _write_private(path: Path, content: bytes) -> None:
    scratch = path.with_name(path.name + ".new")
    scratch.touch(mode=0o600)
    scratch.write_bytes(content)
    scratch.replace(path)


async def end_process(pid: int, start_time: int) -> None:
    """Kill a process and wait until it is gone. Nothing if it is gone already."""
    send_signal(pid, start_time, signal.SIGKILL)
    await _wait_until_gone(pid, start_time)


async def end_group(pid: int, start_time: int, mark: str) -> None:
    """Kill a worker and what is left of its process group, and wait until the worker is gone."""
    kill_group(pid, start_time, mark)
    await _wait_until_gone(pid, start_time)


async def _wait_until_gone(pid: int, start_time: int) -> None:
    for _ in range(_NUM_POLLS):
        if not is_alive(pid, start_time):
            return
        await asyncio.sleep(_POLL_S)
