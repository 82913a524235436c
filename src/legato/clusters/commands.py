"""Runs commands of a cluster to their ends, as the user of this process or as another one."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from legato.clusters.pilots import ClusterAwayError
from legato.core.job_user import JobUser
from legato.system import run_as

_NOBODY: Final = 65534


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
) -> Done:
    """Run a command to its end.

    Args:
        command: with its arguments; found in ``PATH`` of ``environment``.
        environment: of the command. The user's ``HOME`` and name are added.
        given: what it reads. It is on no command line, and other users cannot read it.
        user: as whom it runs, without privileges. None: as the user of this process.
        limit_s: after so many seconds it is killed.

    Raises:
        SilentError: it did not end in time.
        ClusterAwayError: it cannot be started.
    """
    content, variables = given, dict(environment)
    if user is not None:
        program = shutil.which(command[0], path=environment.get("PATH", os.defpath))
        if program is None:
            raise ClusterAwayError(f"Cannot run {command[0]}: No such file or directory. Is Slurm installed here?")
        order = {"uid": user.uid, "gid": user.gid, "groups": user.groups, "directory": "/", "file": None}
        order |= {"environment": variables | user.variables(), "command": [program, *command[1:]], "input": given}
        content, variables, command = json.dumps(order), {}, [sys.executable, "-I", "-S", run_as.__file__]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=None if user is None else "/",
            env=variables,
            start_new_session=True,
        )
    except OSError as error:
        raise ClusterAwayError(f"Cannot run {command[0]}: {error.strerror}. Is Slurm installed here?") from None
    try:
        async with asyncio.timeout(limit_s):
            told, errors = await process.communicate(content.encode())
    except TimeoutError:
        raise SilentError(f"{command[0]} did not answer within {limit_s:g} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Done(process.returncode, told.decode(errors="replace"), errors.decode(errors="replace"))


def find_account(uid: int) -> JobUser:
    """Return the system user with a number. One that has no account any more has no group and no home."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return JobUser(uid=uid, gid=_NOBODY, name=str(uid), home="/")
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return JobUser(uid=uid, gid=found.pw_gid, groups=groups, name=found.pw_name, home=found.pw_dir)
