"""Runs commands of a cluster to their ends, as the user of this process or as another one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from legato.clusters.pilots import ClusterAwayError
from legato.core.job_user import JobUser
from legato.engines.job_users import look_up_user
from legato.system import run_as

_NOBODY: Final = 65534
_KILL_LIMIT_S: Final = 5.0
"""A command that was killed ends within this time, unless the kernel holds it, for example for a lost disk."""
_READ_BYTES: Final = 2**16


class SilentError(ClusterAwayError):
    """A command did not end, so what it did is unknown."""


class Done(NamedTuple):
    """The exit code of a command, what it has written, and what it has written to stderr."""

    code: int
    told: str
    errors: str


async def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    given: str = "",
    *,
    user: JobUser | None = None,
    limit_s: float,
    max_bytes: int,
) -> Done:
    """Run a command to its end. Processes that it leaves behind may keep its stdout and stderr open.

    Args:
        command: with its arguments; found in ``PATH`` of ``environment``.
        environment: of the command. The user's ``HOME`` and name are added.
        given: what it reads. It is on no command line, and other users cannot read it.
        user: as whom it runs, without privileges. None: as the user of this process.
        limit_s: after so many seconds it is killed, with its children.
        max_bytes: most that it may write to each of stdout and stderr.

    Raises:
        SilentError: it did not end in time, or wrote too much.
        ClusterAwayError: it cannot be started.
    """
    content, variables, name = given, dict(environment), command[0]
    if user is not None:
        program = shutil.which(command[0], path=environment.get("PATH", os.defpath))
        if program is None:
            raise ClusterAwayError(f"Cannot run {command[0]}: No such file or directory. Is Slurm installed here?")
        order = {"uid": user.uid, "gid": user.gid, "groups": user.groups, "directory": "/", "file": None}
        order |= {"environment": variables | user.variables(), "command": [program, *command[1:]], "input": given}
        content, variables, command = json.dumps(order), {}, [sys.executable, "-I", "-S", run_as.__file__]
    with _Output(max_bytes) as output, _Output(max_bytes) as errors, _keep_in_memory(content) as source:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=source,
                stdout=output.target,
                stderr=errors.target,
                cwd=None if user is None else "/",
                env=variables,
                start_new_session=True,
            )
        except OSError as error:
            raise ClusterAwayError(f"Cannot run {command[0]}: {error.strerror}. Is Slurm installed here?") from None
        try:
            async with asyncio.timeout(limit_s):
                code = await process.wait()
        except TimeoutError:
            raise SilentError(f"{name} did not answer within {limit_s:g} s.") from None
        finally:
            if process.returncode is None:
                await _kill(process)
        if not (output.take_rest() and errors.take_rest()):
            raise SilentError(f"{name} wrote more than {max_bytes} bytes.")
        return Done(code, output.text, errors.text)


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a command and its children. Some of them may have left its group, so only the command is waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_LIMIT_S):
            await process.wait()


@contextlib.contextmanager
def _keep_in_memory(content: str) -> Iterator[int]:
    """Give a file without a name, at its beginning. The server does not wait for a command that does not read it."""
    with os.fdopen(os.memfd_create("input"), "w+b") as file:
        file.write(content.encode())
        file.seek(0)
        yield file.fileno()


class _Output:
    """A pipe to which a command writes.

    The end of the command counts, and not that of the pipe: other processes may have the pipe too, such as children, or
    those that a user has given it to.

    Args:
        max_bytes: what comes after so many is not read. A command that writes more has to wait.

    Attributes:
        target: the end for the command.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._content = bytearray()

    def __enter__(self) -> Self:
        self._source, self.target = os.pipe()
        os.set_blocking(self._source, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._source, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._source)
        os.close(self._source)
        os.close(self.target)

    @property
    def text(self) -> str:
        """What was read."""
        return self._content.decode(errors="replace")

    def take_rest(self) -> bool:
        """Read what the command has left in the pipe at its end. Returns False if it wrote too much."""
        while self._take():
            pass
        return len(self._content) <= self._max_bytes

    def _take(self) -> bool:
        """Read once; returns whether there may be more to read."""
        room = self._max_bytes + 1 - len(self._content)
        try:
            part = os.read(self._source, min(room, _READ_BYTES))
        except BlockingIOError:
            return False
        self._content += part
        if len(part) == room:
            self._loop.remove_reader(self._source)
        return bool(part)


def find_account(uid: int) -> JobUser:
    """Return the system user with a number. One that has no account any more has no group and no home."""
    return look_up_user(uid) or JobUser(uid=uid, gid=_NOBODY, name=str(uid), home="/")
