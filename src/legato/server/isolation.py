"""The system users as whom jobs run: checks at the start of a server, and the system user of each job.

If jobs run as users of their own, the operating system protects the store, the server and other jobs from them. This
module checks that, and sets the modes of directories that it needs.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from legato.control.settings import Settings
from legato.control.store import Store
from legato.core.errors import NoSystemUser, UsageError
from legato.core.job_user import JobUser
from legato.engines.environment import pass_on
from legato.engines.job_users import CAPABILITIES, is_powerful, list_missing_capabilities, look_up_user
from legato.engines.parent import try_as
from legato.server.services import JOBS
from legato.system.plain_files import make_folder_for

HOMES: Final = "homes"
OUTPUT_OF_USERS: Final = "user-pilots"
"""The folder of the home with a folder for each user whose pilots run as this user, with their output."""
_PASS_THROUGH: Final = 0o711
_OTHERS: Final = 0o077
_log = structlog.get_logger(__name__)
_TRIAL: Final = "import importlib.util, sys, legato; sys.exit(0 if importlib.util.find_spec('torch') else 'No torch.')"


def check_isolation(settings: Settings, *, is_open: bool) -> None:
    """Check that jobs can run as the setting ``run_jobs_as`` says, and close the home to them.

    Args:
        settings: of the server.
        is_open: other machines can reach the server.

    Raises:
        UsageError: jobs cannot run so, or it would not be safe.
    """
    mode = settings.run_jobs_as
    if mode == "server":
        if is_open and not settings.allow_jobs_as_server:
            raise UsageError(
                f"Cannot start: other machines can reach {settings.host}, and jobs would run as the user that runs "
                "this server. Each user who may submit a job could read and change everything that this user can, "
                "including the database and the jobs of all users. Set run_jobs_as to pool or submitter; or, if you "
                "trust all users who may submit jobs with that, set allow_jobs_as_server=true."
            )
        return
    refusal = f"Cannot start with run_jobs_as={mode}"
    if sys.platform != "linux":
        raise UsageError(f"{refusal}: only Linux supports that. Set run_jobs_as=server.")
    _check_capabilities(refusal)
    if mode == "submitter":
        _check_job_users(settings, refusal)
    os.umask(_OTHERS)  # only the server's user may access files that this process creates, such as the store
    close_home(settings.home_path)
    for folder in settings.home_path.resolve().parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise UsageError(
                f"{refusal}: users of jobs cannot reach '{settings.home_path}', because '{folder}' is closed to them. "
                "Name another directory with the setting home, such as /var/lib/legato, or open that one: "
                f"chmod o+x {folder}"
            )
    if mode == "pool":
        _groups_of_pool(settings, refusal)
        uid = settings.pool_range[0]
        user = JobUser(uid=uid, gid=uid, name="legato", home="/")
        error = try_as(user, [sys.executable, "-c", _TRIAL], pass_on(os.environ))
        if error is not None:
            raise UsageError(
                f"{refusal}: a program of user {uid} cannot run {sys.executable} with Legato and torch ({error}). "
                "Install them where every user may read them, and keep pool_uids within the numbers of "
                "/proc/self/uid_map."
            )


def check_submitter(settings: Settings, owner: str, refusal: str) -> None:
    """Check, when a job is submitted, that its owner has a system user, if ``run_jobs_as=submitter``.

    Args:
        settings: of the server.
        owner: of the job.
        refusal: the beginning of the error's text.

    Raises:
        UsageError: there is no such system user, or jobs must not run as it.
    """
    if settings.run_jobs_as == "submitter":
        find_submitter(settings, owner, refusal)


def close_home(home: Path) -> None:
    """Let the system users of jobs pass through a home to their own directories, and close everything else to them.

    Raises:
        UsageError: the modes cannot be changed.
    """
    open_ones = {JOBS, HOMES}
    try:
        for name in open_ones:
            (home / name).mkdir(exist_ok=True)
            (home / name).chmod(_PASS_THROUGH)
        for entry in os.scandir(home):
            about = entry.stat(follow_symlinks=False)
            if entry.name not in {*open_ones, _DATA, OUTPUT_OF_USERS} and not stat.S_ISLNK(about.st_mode):
                _close(Path(entry.path), about)
        for entry in os.scandir(home / JOBS):
            about = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode) and about.st_mode & 0o007:
                _close(Path(entry.path), about)  # a job that ran as the server has left it open
        home.chmod(_PASS_THROUGH)
    except OSError as error:
        raise UsageError(
            f"Cannot close '{home}' to jobs: {error}. Everything in it must belong to the user that runs the server."
        ) from error


class JobUsers:
    """Finds the system user as whom the jobs of a user of the platform run.

    Args:
        settings: of the server.
        store: the store, which keeps the user ids that were assigned from the pool.
        now: returns seconds since 1970.
    """

    def __init__(self, settings: Settings, store: Store, now: Callable[[], float]) -> None:
        self._settings = settings
        self._store = store
        self._now = now

    def __call__(self, owner: str) -> JobUser | None:
        """Return the system user for jobs of ``owner``. None: jobs run as the user of the server.

        Raises:
            UsageError: there is no system user for them.
            LegatoError: the user's home directory cannot be created.
        """
        refusal = f"Cannot run jobs of '{owner}'"
        match self._settings.run_jobs_as:
            case "submitter":
                return find_submitter(self._settings, owner, refusal)
            case "pool":
                return self._find_in_pool(owner, refusal)
            case _:
                return None

    def _find_in_pool(self, owner: str, refusal: str) -> JobUser:
        groups = _groups_of_pool(self._settings, refusal)
        uid = self._store.accounts.assign_uid(owner, self._settings.pool_range, self._now(), is_taken=_is_known)
        home = self._settings.home_path / HOMES / owner
        user = JobUser(uid=uid, gid=uid, groups=groups, name=owner, home=str(home))
        make_folder_for(home, user)
        return user


def find_submitter(settings: Settings, owner: str, refusal: str) -> JobUser:
    """Return the system user of a user of the platform. The arguments are those of `check_submitter`.

    Raises:
        NoSystemUser: there is no such system user, or the system cannot say now whether there is.
        UsageError: jobs must not run as it.
    """
    name = settings.system_users.get(owner, owner)
    found = look_up_user(name)
    if found is None:
        raise NoSystemUser(
            f"{refusal}: the server's machine has no system user '{name}' for jobs of '{owner}'. Let the "
            "operator make that user, or name another in the setting job_users."
        )
    if is_powerful(found):
        raise UsageError(
            f"{refusal}: jobs of '{owner}' would run as the system user '{name}', which can do all that the server "
            "can. The operator must choose another one in the setting job_users."
        )
    return found


# ---------------------------------------------------------------- inside

_DATA: Final = "data"  # data for jobs of WMLA; the operator decides who may read it


def _close(path: Path, about: os.stat_result) -> None:
    if about.st_mode & _OTHERS:
        path.chmod(stat.S_IMODE(about.st_mode) & ~_OTHERS)


def _check_capabilities(refusal: str) -> None:
    missing = list_missing_capabilities(for_programs=True)  # drivers are separate programs
    if missing:
        raise UsageError(
            f"{refusal}: user {os.geteuid()} does not have the capabilities {', '.join(missing)}. Run the server as "
            f"root, or give it {' '.join(f'CAP_{name}' for name in CAPABILITIES)} as ambient capabilities "
            "(AmbientCapabilities= in a unit of systemd)."
        )


def _check_job_users(settings: Settings, refusal: str) -> None:
    """Check the setting ``job_users``. A system user that is not found may still be made."""
    users: dict[int, list[str]] = {}
    for user, name in settings.system_users.items():
        found = look_up_user(name)
        if found is None:
            continue
        if is_powerful(found):
            raise UsageError(
                f"{refusal}: the setting job_users gives '{user}' the system user '{name}', which can do all that the "
                "server can. Name a system user without such rights."
            )
        users.setdefault(found.uid, []).append(f"{user}={name}")
    for pairs in users.values():
        if len(pairs) > 1:
            _log.warning(
                "users have one system user, so they can read and change each other's jobs and files; give each "
                "person a system user of their own",
                job_users=", ".join(pairs),
            )


def _groups_of_pool(settings: Settings, refusal: str) -> tuple[int, ...]:
    found = []
    for name in settings.pool_groups:
        try:
            found.append(grp.getgrnam(name).gr_gid)
        except KeyError:
            raise UsageError(f"{refusal}: the setting pool_groups names '{name}', which is no group here.") from None
    return tuple(found)


def _is_known(uid: int) -> bool:
    for find in (pwd.getpwuid, grp.getgrgid):
        try:
            find(uid)
        except KeyError:
            continue
        return True
    return False
