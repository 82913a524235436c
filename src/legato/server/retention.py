"""Deletes old jobs, uploads, tokens and other records on the deciding server, and kills leftover processes of jobs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from legato.control.home_lock import HOME_FILE
from legato.control.ids import is_job_id
from legato.control.store import Purged
from legato.core.errors import FencedOut, LegatoError
from legato.core.warm import MARK_VARIABLE
from legato.server.services import JOBS, Services
from legato.system.plain_files import delete_tree
from legato.system.processes import kill_all_of, values_in_line

_log = structlog.get_logger(__name__)

_EVERY_S: Final = 600.0
_SPARED_S: Final = 60.0
_DAY_S: Final = 86400.0
_HOUR_S: Final = 3600.0


async def run_retention(services: Services, every_s: float = _EVERY_S) -> None:
    """Delete old data and kill leftover processes regularly until cancelled. Errors are only logged."""
    while True:
        for task, what in (
            (delete_old_data, "old data of jobs"),
            (kill_leftover_processes, "leftover processes of jobs"),
        ):
            try:
                await asyncio.to_thread(task, services)
            except FencedOut:
                _log.info("another server decides now, and removes old data")
            except Exception as error:  # noqa: BLE001 -- whatever it is, the other task and the server continue
                expected = isinstance(error, LegatoError | OSError)
                _log.warning(
                    f"{what} could not be removed; the server tries again",
                    error=str(error),
                    exc_info=not expected,
                )
        await asyncio.sleep(every_s)


def delete_old_data(services: Services) -> None:
    """Delete data that are older than the settings allow, if this server is the one that decides.

    Every server deletes the leftovers of interrupted uploads.

    Raises:
        FencedOut: another server decides now.
        StoreError: the store cannot be used.
    """
    now = services.now()
    services.code.delete_leftovers(now - _DAY_S)
    lease = services.read_own_lease()
    if lease is None:
        return
    while True:
        with services.code.lock():
            purged = services.store.retention.purge(
                lease.fence,
                now,
                jobs_before=_before(now, services.settings.keep_jobs_days),
                uploads_before=_before(now, services.settings.keep_uploads_days),
                keys_before=now - services.settings.keep_keys_hours * _HOUR_S,
            )
            services.code.delete_purged(purged)
        if not (purged.jobs or purged.uploads or purged.num_sweeps or purged.has_more):
            return
        _delete_jobs(services.settings.home_path / JOBS, purged)


def kill_leftover_processes(services: Services) -> None:
    """Kill processes that ended jobs have left behind, also hidden ones. Only with ``run_jobs_as=pool``.

    In this mode each user's jobs have a user id of their own, and nothing else runs with this id. So while the user has
    no job that may have processes, every process with this id is a leftover. Processes of the last minute are spared,
    because they may belong to a job that starts now. So are processes of other platforms of this machine, which may use
    the same ids by mistake.

    Raises:
        StoreError: the store cannot be used.
        LegatoError: the system does not allow it.
    """
    settings = services.settings
    if settings.run_jobs_as != "pool" or not services.loop.starts_drivers or services.read_own_lease() is None:
        return
    found = services.store.accounts.list_idle_uids()
    idle = {uid: user for user, uid in found.items() if uid in settings.pool_range}
    home = settings.home_path.resolve()

    def is_spared(pid: int, uid: int) -> bool:
        return _is_of_another_platform(pid, uid, home)

    for uid, num_killed in kill_all_of(idle, _SPARED_S, is_spared).items():
        _log.warning("leftover processes of a user's jobs were killed", user=idle[uid], processes=num_killed)


def _is_of_another_platform(pid: int, uid: int, home: Path) -> bool:
    """Return whether a job of another platform of this machine started a process. True also if the system hides that.

    A job cannot pretend that: the file that marks the other home must belong to another user than the process.
    """
    records = values_in_line(pid, MARK_VARIABLE)
    if records is None:
        return True
    for record in records:
        for folder in Path(record).parents:
            try:
                owner = (folder / HOME_FILE).stat().st_uid
            except OSError:
                continue
            if owner != uid:
                if folder.resolve() != home:
                    return True
                break
    return False


def _delete_jobs(root: Path, purged: Purged) -> None:
    for job in purged.jobs:
        assert is_job_id(job), f"{job} becomes part of a path"
        delete_directory(root / job)
    _log.info("old data were deleted", jobs=len(purged.jobs), uploads=len(purged.uploads))


def delete_directory(directory: Path) -> None:
    """Delete a job's directory. Files that cannot be deleted are only logged: they use disk space, but harm no job."""
    failure = delete_tree(directory)
    if failure is not None:
        _log.warning("files of a deleted job cannot be deleted", job=directory.name, error=failure)


def _before(now: float, days: float | None) -> float | None:
    return None if days is None else now - days * _DAY_S
