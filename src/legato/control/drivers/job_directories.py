"""Prepares and reads a job's directory around its driver: copy of the code, leftover processes, last log lines.

`legato.driver.journal` reads and writes the driver's own files. This module starts nothing and decides nothing.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.core.limits import Limits
from legato.core.warm import Record, mark_of
from legato.engines.cgroups import JobGroup, find_support
from legato.engines.parent import end_group, end_process, find_record, kill_as, read_record
from legato.system.plain_files import make_folder_for
from legato.system.processes import is_alive

_WORK: Final = "work"
_SCRATCH: Final = ".work-"
_TAIL_BYTES: Final = 4096
_LOGGED: Final = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ (?P<level>[A-Z]+) ")
_MERE_WORDS: Final = frozenset({"DEBUG", "INFO", "WARNING"})


def copy_code(code: Path, directory: Path, folder: str = "", user: JobUser | None = None) -> Path:
    """Copy a job's code unless the job has a copy, and return the path of the copy.

    If several processes copy at the same time, one complete copy is kept.

    Args:
        code: stays as it is.
        directory: of the job.
        folder: folder of the copy into which the code goes; "": the copy itself.
        user: the system user who gets the copy. None: the user of this process.

    Raises:
        LegatoError: the code does not exist, or cannot be copied.
    """
    work = directory / _WORK
    if work.exists():
        _remove_scratch(directory)
        _hand_over(work, user)
        return work
    if not code.is_dir():
        raise LegatoError(f"Its code was deleted: {code} does not exist any more. Submit the job again.")
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=directory))
    try:
        shutil.copytree(code, scratch / folder, symlinks=True, dirs_exist_ok=True)
        _hand_over(scratch, user)
        if not work.exists():
            scratch.rename(work)
    except OSError as error:
        if not work.exists():
            raise LegatoError(f"Its code cannot be copied to {work}: {_first_reason(error)}.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _remove_scratch(directory)
    return work


def _hand_over(work: Path, user: JobUser | None) -> None:
    if user is not None:
        make_folder_for(work, user)


def _remove_scratch(directory: Path) -> None:
    """Remove the files of interrupted copies. A copy that is still under way is no longer needed either."""
    for left in directory.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)


def _first_reason(error: OSError) -> str:
    if isinstance(error, shutil.Error):
        # A list of (source, target, why).
        return str(error.args[0][0][2])
    return error.strerror or str(error)


async def end_leftovers(directory: Path, user: JobUser | None = None) -> None:
    """Kill the processes of a job that has no driver: its workers and their warm parent.

    Args:
        directory: of the job.
        user: the system user of these processes. None: the user of this process.

    Raises:
        LegatoError: one of these processes may still run.
    """
    path, uid = find_record(directory, user), None if user is None else user.uid
    record = _read_record(path, user)
    if record is not None and record.pid:
        # The warm parent first: it could fork another worker.
        await end_process(record.pid, record.start_time, uid)
        record = _read_record(path, user) or record
    if user is not None:
        await asyncio.to_thread(kill_as, user, mark_of(str(path)))
    groups = JobGroup(directory, Limits(), find_support())
    await asyncio.to_thread(groups.kill)
    groups.close()
    if record is None:
        return
    left = [entry for entry in record.workers.values() if entry.exit_code is None]
    if user is not None:
        # `kill_as` has killed what ended workers left. The job can write its record, which could name thousands of
        # ended workers.
        left = [entry for entry in left if is_alive(entry.pid, entry.start_time, uid)]
    for entry in left:
        await end_group(entry.pid, entry.start_time, mark_of(str(path)), uid)
    processes = [(entry.pid, entry.start_time) for entry in left]
    processes += [(record.pid, record.start_time)] if record.pid else []
    alive = [pid for pid, start_time in processes if is_alive(pid, start_time, uid)]
    if alive:
        raise LegatoError(f"Its processes {', '.join(map(str, alive))} cannot be killed. End them by hand.")


def _read_record(path: Path, user: JobUser | None) -> Record | None:
    try:
        return read_record(path)
    except LegatoError:
        if user is None:
            raise
        # The job may have written anything into this file. Its processes are found by their mark.
        return None


def read_last_error(log: Path) -> str:
    """Return the last line of a log if it looks like an error, else ""."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    logged = _LOGGED.match(last)
    if logged is None:
        return last
    return "" if logged["level"] in _MERE_WORDS else last[logged.end() :]
