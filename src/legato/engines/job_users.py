"""System users as whom jobs run, on this machine: which exist, what they can reach, and who can become them."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from legato.core.errors import UsageError
from legato.core.job_user import JobUser
from legato.engines.environment import pass_on
from legato.engines.parent import try_as

CAPABILITIES: Final = {"CHOWN": 0, "DAC_OVERRIDE": 1, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""Linux capabilities and their numbers: to change owners, to access all files, to kill processes, to switch users."""

_ROOT: Final = 0
_REACH: Final = """
import os, sys
sys.exit(next((place for place in sys.argv[1:] if not os.access(place, os.R_OK | os.X_OK)), 0))
"""


def look_up_user(who: str | int) -> JobUser | None:
    """Return the system user of this machine that has a name, or a number; None if there is none."""
    try:
        found = pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who)
    except KeyError:
        return None
    name = who if isinstance(who, str) else found.pw_name
    groups = tuple(os.getgrouplist(name, found.pw_gid))
    return JobUser(uid=found.pw_uid, gid=found.pw_gid, groups=groups, name=name, home=found.pw_dir)


def is_powerful(user: JobUser) -> bool:
    """Return whether a user can do all that this process can, so that no job may run as it."""
    return user.uid in (_ROOT, os.geteuid())


def name_own_user() -> str:
    """Return the name of the system user of this process, as whom jobs of this user may run; "": none may."""
    if os.geteuid() == _ROOT or len(list_missing_capabilities()) < len(CAPABILITIES):
        return ""  # a job would have these rights too
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def is_other(name: str) -> bool:
    """Return whether a job runs as another system user than this process. ``name``: of its user; "": as this one."""
    return name not in ("", name_own_user())


def find_closed_folder(user: JobUser, path: Path) -> Path | None:
    """Return the first folder above a path through which a user cannot pass; None: it can reach the path."""
    for folder in reversed(path.resolve().parents):
        about = folder.stat()
        if about.st_uid == user.uid:
            bit = stat.S_IXUSR
        else:
            bit = stat.S_IXGRP if about.st_gid in (user.gid, *user.groups) else stat.S_IXOTH
        if not about.st_mode & bit:
            return folder
    return None


def find_user_of_agent(name: str, directory: Path) -> JobUser:
    """Return the system user of a job on a machine with an agent.

    Args:
        name: of the user.
        directory: of the agent; the user's processes use it.

    Raises:
        UsageError: there is no such user, no job may run as it, or it cannot reach the directory.
    """
    user = look_up_user(name)
    if user is None:
        raise UsageError(
            f"it has no system user '{name}', as whom this job runs: make that user on this machine, with the "
            "rights to read the job's data"
        )
    if is_powerful(user):
        raise UsageError(
            f"the job would run there as the system user '{name}', which can do all that the agent can: choose "
            "another one in the server's setting job_users"
        )
    closed = find_closed_folder(user, directory)
    if closed is not None:
        raise UsageError(
            f"the system user '{name}' cannot reach '{directory}' there, because '{closed}' is closed to "
            "it: start the agent with --home and a folder that all users can pass through, or open the closed one "
            "by chmod o+x"
        )
    return user


def drop_variables() -> None:
    """Remove the variables of this process that are not for jobs."""
    passed = pass_on(os.environ)
    os.environ.clear()
    os.environ.update(passed)


def list_missing_capabilities(*, for_programs: bool = False) -> list[str]:
    """Return the capabilities that this process needs to run jobs as other users, and does not have.

    Args:
        for_programs: programs that it starts need them too.
    """
    if sys.platform != "linux":
        return list(CAPABILITIES)
    had = _read_capabilities("CapEff")
    if for_programs and os.geteuid() != _ROOT:
        had &= _read_capabilities("CapAmb")
    return [name for name, number in CAPABILITIES.items() if not had >> number & 1]


def check_reach(user: JobUser, places: Sequence[str]) -> None:
    """Check that a user may read the folders that a job needs, and run this Python.

    Raises:
        UsageError: it may not.
    """
    error = try_as(user, [sys.executable, "-I", "-S", "-c", _REACH, *places], {})
    if error is None:
        return
    what = f"read the directory '{error}'" if error in places else f"run Python ({error})"
    raise UsageError(
        f"it cannot run: the system user {user.uid}, as whom it runs, may not {what} on this machine. The operator "
        "must give that user the right."
    )


def _read_capabilities(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith(f"{field}:")), 0)
