"""Processes of the local engine: starts a warm parent, and ends one that does not answer. Sends no messages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec

from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.core.warm import UNKNOWN_EXIT_CODE, Record, mark_of
from legato.engines.variables import search_path
from legato.system import run_as
from legato.system.decoding import decode
from legato.system.plain_files import read_plain_file
from legato.system.processes import boot_id, is_alive, kill_group, send_signal

RUN: Final = "run"
"""The folder of a job's warm parent, if the job has a user of its own."""
_MAX_SOCKET_PATH: Final = 100
"""The kernel takes 107 bytes; some are left for the file's name."""
_MAX_RECORD_BYTES: Final = 2 * 2**20
"""Enough for tens of thousands of workers. A job can write false entries too, and each entry is checked."""
_NUM_POLLS: Final = 200
_POLL_S: Final = 0.01
_LIMIT_S: Final = 60.0
_KILL_LIMIT_S: Final = 5.0
_MAX_OUTPUT_BYTES: Final = 2**16


def read_record(path: Path) -> Record | None:
    """Return the record of a warm parent and its workers, None if there is none.

    Raises:
        LegatoError: the file cannot be read.
    """
    try:
        # A job with a separate user may have written anything into this file.
        record = decode(read_plain_file(path, _MAX_RECORD_BYTES), Record)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise LegatoError(
            f"Cannot read {path}: {error}. It tells which processes belong to the job: "
            "end them by hand, then remove the file."
        ) from error
    if record.boot not in ("", boot_id()):
        # The machine has rebooted since, so all of them have ended, even if other processes have their numbers now.
        record.pid = record.start_time = 0
        for entry in record.workers.values():
            entry.exit_code = UNKNOWN_EXIT_CODE if entry.exit_code is None else entry.exit_code
    return record


def find_record(job_directory: Path, user: JobUser | None) -> Path:
    """Return the path of a warm parent's record, in a separate folder if the job has a separate user."""
    return job_directory / "engine.json" if user is None else job_directory / RUN / "engine.json"


def start_parent(
    record: Record, variables: Mapping[str, str], record_path: Path, log_path: Path, user: JobUser | None = None
) -> subprocess.Popen[bytes]:
    """Start a warm parent on the socket that the record names, which accepts connections at once.

    Args:
        record: its record, with the workers that it adopts.
        variables: its environment.
        record_path: path of the record.
        log_path: where its output goes.
        user: the system user as whom it runs. None: the user of this process.
    """
    name, _, value = mark_of(str(record_path)).partition("=")
    environment = {**variables, name: value}
    with (
        socket.socket(socket.AF_UNIX) as listener,
        log_path.open("ab") as log,
        short_path(Path(record.socket)) as short,
    ):
        listener.bind(short)
        listener.listen(16)
        python = record.python or sys.executable
        command = [python, "-m", "legato.train.process.warm_parent", str(record_path), str(listener.fileno())]
        if user is None:
            write_private(record_path, msgspec.json.encode(record))
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=record_path.parent,
                env=environment,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        file = (str(record_path), msgspec.json.encode(record).decode())
        order = _Order(user, str(record_path.parent), environment, command, file)
        return _start_as(order, log, listener.fileno())


def kill_as(user: JobUser, mark: str) -> None:
    """Kill a user's processes that have a mark, with the rights of that user only.

    Remaining processes of the user can read and stop the process that kills. So it inherits no open file, such as a
    terminal, and is waited for with a time limit.

    Raises:
        LegatoError: the attempt failed.
    """
    told = f"Cannot look for processes that a job of user {user.uid} left behind"
    command = [sys.executable, "-P", "-m", "legato.system.processes", mark]
    environment = search_path(os.environ, {}, str(Path.cwd()), "/")
    process = _start_as(_Order(user, "/", environment, command), subprocess.DEVNULL)
    try:
        code = process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise LegatoError(
            f"{told}: this took longer than {_LIMIT_S:g} s. End the processes of user {user.uid} by hand."
        ) from None
    if code != 0:
        raise LegatoError(f"{told}: {sys.executable} ends with code {code}. This user must be able to run it.")


def try_as(user: JobUser, command: list[str], environment: Mapping[str, str]) -> str | None:
    """Run a command as a user to its end. Returns its last line of output if it failed, else None."""
    try:
        code, output = run_to_end(user, command, environment, _LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"it did not end within {_LIMIT_S:g} s"
    return None if code == 0 else (output.strip().splitlines() or ["it printed nothing"])[-1]


def run_to_end(
    user: JobUser | None, command: list[str], environment: Mapping[str, str], limit_s: float
) -> tuple[int, str]:
    """Run a command in the root directory to its end, as a user; None: as the user of this process.

    Returns:
        Its exit code, and the end of its output.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time, and was killed.
    """
    with tempfile.TemporaryFile() as output:
        if user is None:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=dict(environment),
                start_new_session=True,
            )
        else:
            process = _start_as(_Order(user, "/", dict(environment), command), output)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            # Other processes of the user may stop it.
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                # A process that waits in a driver of a GPU stays; it is left behind.
                process.wait(_KILL_LIMIT_S)
            raise
        output.seek(max(output.seek(0, os.SEEK_END) - _MAX_OUTPUT_BYTES, 0))
        return code, output.read().decode(errors="replace")


class _Order(NamedTuple):
    user: JobUser
    directory: str
    environment: dict[str, str]
    command: list[str]
    file: tuple[str, str] | None = None


def _start_as(order: _Order, output: IO[bytes] | int, *descriptors: int) -> subprocess.Popen[bytes]:
    """Start a command as another user, see `legato.system.run_as`.

    Settings of the user, such as variables, take effect only after the process has become that user.

    Args:
        order: what to start.
        output: where its output goes.
        descriptors: open files that it inherits.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", run_as.__file__],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={},
        pass_fds=descriptors,
        start_new_session=True,
    )
    user = order.user
    said = {
        "uid": user.uid,
        "gid": user.gid,
        "groups": user.groups,
        "directory": order.directory,
        "environment": order.environment,
        "command": order.command,
        "file": order.file,
    }
    assert process.stdin is not None
    # If it has ended already, its log says why.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(msgspec.json.encode(said))
        process.stdin.close()
    return process


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path of a socket that is short enough for the kernel, even if its folder's path is long."""
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def make_socket_directory() -> Path:
    """Make a private directory whose path is short enough for a socket."""
    path = tempfile.mkdtemp(prefix="legato-")
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        Path(path).rmdir()
        path = tempfile.mkdtemp(prefix="legato-", dir="/tmp")
    return Path(path)


def write_private(path: Path, content: bytes, *, is_durable: bool = False) -> None:
    """Replace a file that only its user may read.

    Args:
        path: of the file.
        content: of the file.
        is_durable: the file is on disk when this returns, and a power loss leaves the old or the new one, complete.
            False: the death of a process does, for files that are of no use after the machine has started again.
    """
    descriptor, scratch = tempfile.mkstemp(prefix=path.name, dir=path.parent)  # readable by its user alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
    if is_durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


async def end_process(pid: int, start_time: int, user: int | None = None) -> None:
    """Kill a process and wait until it has ended. Does nothing if it has ended. Arguments as in `send_signal`."""
    send_signal(pid, start_time, signal.SIGKILL, user)
    await _wait_until_gone(pid, start_time, user)


async def end_group(pid: int, start_time: int, mark: str, user: int | None = None) -> None:
    """Kill a worker and its process group, and wait until the worker has ended."""
    kill_group(pid, start_time, mark, user)
    await _wait_until_gone(pid, start_time, user)


async def _wait_until_gone(pid: int, start_time: int, user: int | None) -> None:
    for _ in range(_NUM_POLLS):
        if not is_alive(pid, start_time, user):
            return
        await asyncio.sleep(_POLL_S)
