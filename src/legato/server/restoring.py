"""Restores a home and its store from a backup, after checking the file. A home appears only when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from legato.control.settings import FILE_NAME, Settings
from legato.control.stages import ENDED, HOLDING, Stage
from legato.control.store import Store, export
from legato.control.store.database import Database
from legato.core.errors import LegatoError, UsageError
from legato.core.warm import MARK_VARIABLE
from legato.driver.journal import find_places, replace_file
from legato.server.backups import ABOUT, CHECKSUM, FILES, FORMAT, STORE, About, Checksum, ReportProgress
from legato.server.services import JOBS
from legato.system.decoding import decode
from legato.system.processes import values_in

_CHUNK_BYTES: Final = 2**20
_STORE_FILE: Final = "legato.db"
_NUM_SKIPPED_UIDS: Final = 1000
"""Number of user ids of the pool to skip, because users may have got them after the backup was made."""

ReadSettings = Callable[[Path | None], Settings]
"""Reads the settings, with those of a file if one is given."""


class Restored(NamedTuple):
    """What was restored.

    Args:
        num_jobs: number of all jobs.
        num_going_on: number of jobs that continue when a server starts.
        created_at: when the backup's store was read, in seconds since 1970.
        still_run: ids of processes on this machine that work for jobs of the original home.
    """

    num_jobs: int
    num_going_on: int
    created_at: float
    still_run: tuple[int, ...]


class _JobRow(NamedTuple):
    id: str
    stage: Stage
    attempt: int


def restore_backup(
    file: Path, home: Path, read_settings: ReadSettings, *, now: float, report: ReportProgress
) -> Restored:
    """Restore the home and the store of a backup.

    Args:
        file: the backup.
        home: the new home. It must be empty, or not exist.
        read_settings: called with the backup's settings file, if it has one. The settings say where the store is.
        now: seconds since 1970.
        report: see `legato.server.backups.ReportProgress`.

    Raises:
        UsageError: the home is not empty, there is no room, or the file is not a backup or is damaged.
        StoreError: the store is not empty, cannot be used, or the backup is that of a newer version.
    """
    home = home.expanduser().absolute()
    _check_home(home)
    _check_room(file, home)
    try:
        with file.open("rb") as opened, _opened(opened, file) as tar:
            size = os.fstat(opened.fileno()).st_size
            about = _check_file(tar, file, lambda num_bytes: report(num_bytes // 2, size))
            with _scratch_beside(home) as scratch:
                _extract(tar, scratch, lambda at: report((size + at) // 2, size))
                return _finish(about, scratch, home, read_settings, now)
    except OSError as error:
        raise UsageError(
            f"Cannot restore {file} to '{home}': {error.strerror or error} ('{error.filename or home}')."
        ) from error
    except (tarfile.TarError, EOFError, msgspec.MsgspecError) as error:
        raise _damaged(file, str(error)) from error


def _finish(about: About, scratch: Path, home: Path, read_settings: ReadSettings, now: float) -> Restored:
    """Write the store, adapt the files of the jobs to it, and move the home to its place."""
    inside = scratch / FILES
    own = inside / FILE_NAME
    settings = read_settings(own if own.is_file() else None)
    default = f"sqlite:///{home / _STORE_FILE}"
    is_inside = settings.store_url == default
    database = Database(f"sqlite:///{inside / _STORE_FILE}" if is_inside else settings.store_url)
    try:
        if is_inside:
            (inside / _STORE_FILE).touch(mode=0o600)
        export.check_empty(database)
        jobs: list[_JobRow] = []
        places = find_places(home / JOBS / "any")
        moves = {old: places[name] for name, old in about.places.items() if name in places}
        with (scratch / STORE).open("rb") as lines:
            export.load(
                database,
                _note_jobs(lines, jobs),
                revision=about.revision,
                moves=moves,
                away_s=now - about.created_at,
            )
        store = Store(database)
        store.accounts.skip_uids(settings.pool_range, _NUM_SKIPPED_UIDS, now)
        made_at = datetime.fromtimestamp(about.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        store.events.note_restore(made_at, [job.id for job in jobs if job.stage not in ENDED], now)
    finally:
        database.close()
    for job in jobs:
        _adapt_attempt(inside / JOBS / job.id, job)
    _give_to_owner(inside)
    _sync(inside)
    with contextlib.suppress(FileNotFoundError):
        home.rmdir()
    inside.rename(home)
    going_on = sum(job.stage in HOLDING or job.stage is Stage.QUEUED for job in jobs)
    return Restored(len(jobs), going_on, about.created_at, _find_processes(about.places["home"]))


# ---------------------------------------------------------------- checks


def _check_home(home: Path) -> None:
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise UsageError(
            f"Cannot restore to '{home}': it is not empty. Name a directory that does not exist yet, or move this one "
            "away; Legato never restores over an existing platform."
        )
    if not home.parent.is_dir():
        raise UsageError(f"Cannot restore to '{home}': there is no directory '{home.parent}'. Make it first.")


def _check_room(file: Path, home: Path) -> None:
    try:
        needed = file.stat().st_size
    except OSError as error:
        raise UsageError(f"Cannot read the backup {file}: {error.strerror}.") from None
    free = shutil.disk_usage(home.parent).free
    if needed > free:
        raise UsageError(
            f"Cannot restore {file} to '{home}': it needs about {needed / 2**20:,.0f} MiB, and '{home.parent}' has "
            f"{free / 2**20:,.0f} MiB free. Name a directory on another disk."
        )


def _check_file(tar: tarfile.TarFile, file: Path, report: Callable[[int], None]) -> About:
    """Check the format and the checksum of a backup, and return its description."""
    members = tar.getmembers()
    if not members or members[0].name != ABOUT:
        raise UsageError(f"Cannot restore {file}: it is not a backup of Legato.")
    about = decode(_read(tar, members[0]), About)
    if about.format != FORMAT:
        raise UsageError(
            f"Cannot restore {file}: Legato {about.version} made it in a format that this version cannot read. Install "
            "that version."
        )
    last = members[-1]
    if last.name != CHECKSUM:
        raise _damaged(file, "its end is missing")
    want = decode(_read(tar, last), Checksum).sha256
    found = hashlib.sha256()
    with file.open("rb") as opened:
        while (left := last.offset - opened.tell()) > 0:
            found.update(opened.read(min(left, _CHUNK_BYTES)))
            report(opened.tell())
    if found.hexdigest() != want:
        raise _damaged(file, "its checksum is wrong")
    return about


def _damaged(file: Path, why: str) -> UsageError:
    return UsageError(f"Cannot restore {file}: the file is damaged or was cut off: {why}. Use another backup.")


# ---------------------------------------------------------------- files


@contextlib.contextmanager
def _opened(file: Any, path: Path) -> Iterator[tarfile.TarFile]:
    try:
        tar = tarfile.TarFile(fileobj=file)
    except tarfile.ReadError:
        raise UsageError(f"Cannot restore {path}: it is not a backup of Legato.") from None
    with tar:
        yield tar


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    found = tar.extractfile(member)
    if found is None:
        raise tarfile.ReadError(f"{member.name} is no file")
    return found.read()


def _extract(tar: tarfile.TarFile, scratch: Path, report: Callable[[int], None]) -> None:
    folders = []
    made, written = {FILES}, set[str]()
    for member in tar.getmembers():
        top, folder = member.name.partition("/")[0], member.name.rpartition("/")[0]
        if top not in (FILES, STORE):
            continue
        is_known = member.isdir() or member.isreg() or member.issym()
        is_second = member.name in written or (member.name in made and not member.isdir())
        if not is_known or is_second or (folder not in made and top != STORE):
            # Refused, so that no entry is written through a link.
            raise tarfile.ReadError(f"'{member.name[:200]}' is not in a job's folder")
        if member.isdir():
            made.add(member.name)
            folders.append(member)
        else:
            written.add(member.name)
        # The folder gets its own mode at the end, so that files can be written into it.
        wanted = member.replace(mode=0o700) if member.isdir() else member
        tar.extract(wanted, scratch, numeric_owner=True, filter=_check_inside)
        report(member.offset_data)
    for member in reversed(folders):
        tar.chmod(member, str(scratch / member.name))
        tar.utime(member, str(scratch / member.name))


def _check_inside(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    """Refuse an entry that would be written outside of the folder. Others keep their modes and owners."""
    tarfile.tar_filter(member, path)
    return member


@contextlib.contextmanager
def _scratch_beside(home: Path) -> Iterator[Path]:
    scratch = Path(tempfile.mkdtemp(prefix=f".{home.name}.restoring-", dir=home.parent))
    try:
        (scratch / FILES).mkdir(mode=0o700)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _give_to_owner(home: Path) -> None:
    """Give the home and its store, if root has created them here, to the owner of the original platform."""
    owner = (home / "home-id").stat()
    if os.geteuid() == 0:
        for path in (home, *home.glob(f"{_STORE_FILE}*")):
            os.chown(path, owner.st_uid, owner.st_gid)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.sync()


# ---------------------------------------------------------------- jobs


def _find_processes(home: str) -> tuple[int, ...]:
    """Return the ids of this machine's processes that work for jobs of a home: drivers, warm parents and workers."""
    start = f"{home}/jobs/"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
            words += values_in(int(process.name), MARK_VARIABLE)
            if any(word.startswith(start) for word in words):
                found.append(int(process.name))
    return tuple(sorted(found))


def _note_jobs(lines: Iterable[bytes], jobs: list[_JobRow]) -> Iterator[bytes]:
    """Yield the lines of an exported store, and add its jobs to ``jobs``."""
    columns: list[str] | None = None
    for line in lines:
        if line.startswith(b"{"):
            header = msgspec.json.decode(line)
            columns = header["columns"] if header["table"] == "jobs" else None
        elif columns is not None:
            row = dict(zip(columns, msgspec.json.decode(line), strict=True))
            if isinstance(row["stage"], str) and row["stage"] in set(Stage) and isinstance(row["attempt"], int):
                # Other rows cannot be read by the server, which leaves these jobs out too.
                jobs.append(_JobRow(row["id"], Stage(row["stage"]), row["attempt"]))
        yield line


def _adapt_attempt(directory: Path, job: _JobRow) -> None:
    """Change the number of an attempt that began after the store was read to the one that the restored store expects.

    Otherwise the server would take the driver's state for that of a future attempt, and the job would fail.
    """
    if job.stage in ENDED:
        return
    expected = job.attempt if job.stage in HOLDING else job.attempt + 1
    order = _read_json(directory / "order.json")
    known = 0 if order is None else order["order"]["attempt"]
    if order is None or known <= expected:
        return
    order["order"]["attempt"] = expected
    _replace(directory / "order.json", order)
    journal = _read_json(directory / "journal.json")
    if journal is not None:
        journal["attempt"] = expected if journal["attempt"] == known else min(journal["attempt"], expected)
        _replace(directory / "journal.json", journal)


def _replace(path: Path, content: Any) -> None:
    about = path.stat()
    replace_file(path, msgspec.json.encode(content))
    os.chown(path, about.st_uid, about.st_gid)


def _read_json(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LegatoError(f"Cannot restore {path.name} of job {path.parent.name}: {error}.") from error
