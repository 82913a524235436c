"""Writes a backup of a platform into one file while the platform runs: its store, its uploaded code, its jobs.

The file is a tar file: a description, the store as lines of JSON, the files of the home, and the SHA-256 of all that.
The store is read first, at one moment; each file is read later. So the files of a job are never older than the store.
Where they are newer, `legato.server.restoring` uses the state of the files.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, NamedTuple, cast

import msgspec

import legato
from legato.control.settings import Settings
from legato.control.store import export
from legato.control.store.database import Database
from legato.core.errors import LegatoError, UsageError
from legato.driver.journal import LOCK, find_places
from legato.server.services import CODE, JOBS
from legato.system.hosts import NAMES

ABOUT: Final = "legato-backup.json"
STORE: Final = "store.jsonl"
FILES: Final = "home"
CHECKSUM: Final = "sha256.json"
FORMAT: Final = 1

_CHUNK_BYTES: Final = 2**20
_BLOCK: Final = 512
_MAX_LOOKS: Final = 100
_ABOUT_PROCESSES: Final = frozenset(
    {"address.json", "driver.json", "driver-process.json", "engine.json", "engine.json.new", LOCK, "term"}
)
"""Files about processes. Not backed up, so that a restored server does not command processes of another one."""
_ABOUT_SERVER: Final = frozenset({"server.json", "server.lock", "local-login.json", "first-login.txt", NAMES})
_FIRST: Final = ("order.json", "journal.json")
_CHECKPOINTS: Final = "checkpoints"
_CHECKPOINT: Final = re.compile(r"step-[0-9]{1,15}\.legato")
_MAX_HELD: Final = 64
"""Maximum number of a job's checkpoints that are open at once. A job keeps few, but may write any number of files."""
_MAX_NAME_BYTES: Final = 2000
"""Maximum length of a path in a backup. The system allows 4095 bytes, including the path of the new home."""
_FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)

ReportProgress = Callable[[int, int], None]
"""Reports progress: called with the number of bytes that are done, and with the number of all bytes."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a backup, its first entry.

    Args:
        format: number of the file format.
        version: version of Legato.
        created_at: when the store was read, in seconds since 1970.
        revision: revision of the store's tables.
        places: original paths of the folders to which paths in the store may refer, by name.
        num_bytes: approximate size of the store and the files.
    """

    format: int
    version: str
    created_at: float
    revision: str
    places: dict[str, str]
    num_bytes: int


class Checksum(msgspec.Struct, frozen=True):
    """The last entry of a backup: the SHA-256 of all bytes before it, and the number of files."""

    sha256: str
    num_files: int


class Summary(NamedTuple):
    """What a backup contains. ``left_out``: paths that it does not contain, because they are too long."""

    num_bytes: int
    num_files: int
    num_jobs: int
    left_out: tuple[str, ...] = ()


def write_backup(settings: Settings, file: Path, *, now: float, report: ReportProgress) -> Summary:
    """Write a backup that only its owner can read. The file appears only when it is complete.

    Args:
        settings: the settings with the home and the store. A server may run on them.
        file: the new file. It must not exist.
        now: seconds since 1970.
        report: see `ReportProgress`.

    Raises:
        UsageError: there is nothing to back up, the file cannot be written, or there is no room for it.
        StoreError: the store cannot be used, or its tables are those of another version.
        LegatoError: a file cannot be read.
    """
    home, file = settings.home_path, file.absolute()
    _check_places(settings, file)
    database = Database(settings.store_url)
    try:
        revision = export.read_revision(database)
        with _scratch_beside(file) as (scratch, path), tempfile.TemporaryFile(dir=file.parent) as store:
            jobs = _export(database, store)
            num_bytes = store.tell() + sum(_size_of(entry) for entry in _walk(home, settings, []))
            _check_room(file, num_bytes)
            about = About(
                format=FORMAT,
                version=legato.__version__,
                created_at=now,
                revision=revision,
                places=find_places(home / JOBS / "any"),
                num_bytes=num_bytes,
            )
            writer = _Writer(scratch, num_bytes, report)
            writer.add_text(ABOUT, msgspec.json.encode(about))
            store.seek(0)
            writer.add_store(store)
            left_out: list[str] = []
            for entry in _walk(home, settings, left_out):
                writer.add(entry)
            num_files = writer.close()
            scratch.flush()
            os.fsync(scratch.fileno())
            written = scratch.tell()
            _put_in_place(path, file)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UsageError(
                f"Cannot write the backup {file}: {error.strerror}. Name a file on another disk."
            ) from error
        raise LegatoError(
            f"Cannot make the backup {file}: {error.strerror or error} ('{error.filename or home}'). Run this as the "
            "user of the server, or as root where jobs run as other users (run_jobs_as)."
        ) from error
    finally:
        database.close()
    return Summary(written, num_files, jobs, tuple(left_out))


# ---------------------------------------------------------------- checks


def _check_places(settings: Settings, file: Path) -> None:
    home = settings.home_path
    if not (home / "home-id").is_file():
        raise UsageError(
            f"Cannot back up '{home}': no server has run there yet. Name the directory of the platform with --home."
        )
    kind, _, path = settings.store_url.partition(":///")
    if kind == "sqlite" and not Path(path).is_file():
        raise UsageError(f"Cannot back up '{home}': its store '{path}' is missing. Check the setting database_url.")
    if file.exists():
        raise UsageError(f"Cannot write the backup {file}: it exists already. Name another file.")
    if not file.parent.is_dir():
        raise UsageError(f"Cannot write the backup {file}: there is no directory '{file.parent}'. Make it first.")
    if file.is_relative_to(home):
        raise UsageError(
            f"Cannot write the backup {file}: it would be inside of what it backs up. Name a file outside of '{home}', "
            "best on another disk."
        )


def _check_room(file: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(file.parent).free
    if num_bytes > free:
        raise UsageError(
            f"Cannot write the backup {file}: it needs about {num_bytes / 2**20:,.0f} MiB, and '{file.parent}' has "
            f"{free / 2**20:,.0f} MiB free. Name a file on another disk."
        )


# ---------------------------------------------------------------- files of the home


def _always(_: str) -> bool:
    return True


class _Entry(NamedTuple):
    """A file, folder or link of the home.

    Args:
        path: its path. It is opened by the last part of this, relative to ``folder``.
        name: its path relative to the home.
        folder: file descriptor of the folder that contains it.
        about: its type and size. If a program replaces it by something else meanwhile, it is left out.
        held: file descriptor of the file, if it is open already, so that it is copied even if it is deleted meanwhile.
    """

    path: Path
    name: str
    folder: int
    about: os.stat_result
    held: int | None = None


class _Place:
    """The home, in which programs of jobs may replace any file at any moment. No link in a path is followed.

    Each folder of a path is opened relative to the one before, as in `legato.server.job_files`.
    """

    def __init__(self, home: Path, left_out: list[str]) -> None:
        self.home = home
        self._left_out = left_out

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[int | None]:
        """Open a folder during the block. None: it does not exist, or no longer."""
        descriptor: int | None = os.open(self.home, _FOLDER & ~os.O_NOFOLLOW)
        try:
            try:
                for part in name.split("/") if name else ():
                    assert descriptor is not None
                    inner = os.open(part, _FOLDER, dir_fd=descriptor)
                    os.close(descriptor)
                    descriptor = inner
            except OSError as error:
                if error.errno not in _NOT_THERE or descriptor is None:
                    raise
                os.close(descriptor)
                descriptor = None
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def list(self, name: str) -> list[str]:
        """Return the sorted names in a folder. Empty: the folder does not exist."""
        with self.open(name) as folder:
            return [] if folder is None else sorted(os.listdir(folder))

    def walk(
        self,
        top: str,
        is_left_out: Callable[[str], bool],
        *,
        goes_into: Callable[[str], bool] = _always,
        done: Collection[str] = (),
    ) -> Iterator[_Entry]:
        """Yield the entries of a folder and of the folders in it. A folder comes before its entries.

        Args:
            top: name of the folder, which is not yielded itself.
            is_left_out: returns whether an entry is not part of a backup, by its name.
            goes_into: returns whether to yield the entries of a folder, by its name.
            done: names of entries that were yielded before, and are not yielded again.
        """
        waiting = [top]
        while waiting:
            name = waiting.pop()
            inner = []
            with self.open(name) as folder:
                for child in sorted(os.listdir(folder)) if folder is not None else ():
                    assert folder is not None
                    whole = f"{name}/{child}" if name else child
                    if is_left_out(whole):
                        continue
                    if len(os.fsencode(whole)) > _MAX_NAME_BYTES:
                        self._left_out.append(whole)
                        continue
                    entry = self._look(folder, whole)
                    if entry is None:
                        continue
                    if whole not in done:
                        yield entry
                    if stat.S_ISDIR(entry.about.st_mode) and goes_into(whole):
                        inner.append(whole)
            waiting.extend(reversed(inner))

    def hold(self, name: str, stack: contextlib.ExitStack) -> _Entry | None:
        """Open a file until the stack ends. None: there is no such regular file."""
        with self.entry(name) as entry:
            held = None if entry is None or not stat.S_ISREG(entry.about.st_mode) else _open_file(entry)
            if entry is None or held is None:
                return None
            stack.callback(os.close, held)
            return entry._replace(held=held)

    @contextlib.contextmanager
    def entry(self, name: str) -> Iterator[_Entry | None]:
        """Return an entry, whose folder is open during the block. None: it does not exist."""
        with self.open(name.rpartition("/")[0]) as folder:
            yield None if folder is None else self._look(folder, name)

    def _look(self, folder: int, name: str) -> _Entry | None:
        try:
            about = os.stat(name.rpartition("/")[2], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None  # deleted meanwhile
        return _Entry(self.home / name, name, folder, about)


def _open_file(entry: _Entry) -> int | None:
    """Open a file. None: it was deleted, or a program has replaced it by something else."""
    try:
        descriptor = os.open(entry.path.name, _FILE, dir_fd=entry.folder)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _walk(home: Path, settings: Settings, left_out: list[str]) -> Iterator[_Entry]:
    """Yield the entries of a home that a backup contains, and add those with too long paths to ``left_out``.

    A folder comes before its entries.
    """
    store = settings.store_url.removeprefix("sqlite:///") if settings.store_url.startswith("sqlite:") else None
    kept_elsewhere = {settings.wmla_data_path} | {home / name for name in _ABOUT_SERVER}
    if store is not None:
        kept_elsewhere |= {Path(f"{store}{ending}").absolute() for ending in ("", "-wal", "-shm")}
    place = _Place(home, left_out)

    def is_left_out(name: str) -> bool:
        # Names with a dot in the folder of uploads: these are being unpacked or deleted.
        return home / name in kept_elsewhere or name.startswith(f"{CODE}/.")

    yield from place.walk("", is_left_out, goes_into=lambda name: name != JOBS)
    for job in place.list(JOBS):
        yield from _walk_job(place, f"{JOBS}/{job}")


def _walk_job(place: _Place, name: str) -> Iterator[_Entry]:
    """Yield the entries of a job that a backup contains: first its state, and the checkpoints that fit to it."""
    with place.entry(name) as job:
        if job is None:
            return
        yield job
        if not stat.S_ISDIR(job.about.st_mode):
            return
    done: set[str] = set()
    with contextlib.ExitStack() as stack:
        first = [place.hold(f"{name}/{file}", stack) for file in _FIRST]
        inside = [_CHECKPOINTS, *(f"{inner}/{_CHECKPOINTS}" for inner in place.list(name) if inner != "work")]
        checkpoints = {folder: _hold_all(place, f"{name}/{folder}", stack) for folder in inside}
        for entry in first:
            if entry is not None:
                done.add(entry.name)
                yield entry
        for folder, files in checkpoints.items():
            parts = folder.split("/")
            for whole in (f"{name}/{'/'.join(parts[:end])}" for end in range(1, len(parts) + 1) if files):
                with place.entry(whole) as found:
                    if found is not None and whole not in done and stat.S_ISDIR(found.about.st_mode):
                        done.add(whole)
                        yield found
                if whole not in done:
                    break  # a program has replaced it by something else
            else:
                for entry in files:
                    done.add(entry.name)
                    yield entry

        def is_left_out(whole: str) -> bool:
            parts = whole.removeprefix(f"{name}/").split("/")
            is_ours = len(parts) == 1 or (len(parts) == 2 and parts[0] not in ("work", "guest"))
            return is_ours and (parts[-1] in _ABOUT_PROCESSES or parts[-1].startswith((".work-", f"{LOCK}-")))

        yield from place.walk(name, is_left_out, done=done)


def _hold_all(place: _Place, folder: str, stack: contextlib.ExitStack) -> list[_Entry]:
    """Open the newest checkpoints as they are at one moment, because the job may delete them while they are copied."""
    num_looks = 0
    while True:
        num_looks += 1
        found = [name for name in place.list(folder) if _CHECKPOINT.fullmatch(name)]
        names = sorted(found, key=lambda name: (len(name), name))[-_MAX_HELD:]
        with contextlib.ExitStack() as own:
            held = [place.hold(f"{folder}/{name}", own) for name in names]
            # Try again if one was deleted meanwhile. A name that still exists and cannot be opened is not a file. The
            # number of attempts is limited, in case a program keeps deleting its newest files.
            if None not in held or set(names) <= set(place.list(folder)) or num_looks == _MAX_LOOKS:
                stack.push(own.pop_all())
                return [entry for entry in held if entry is not None]


def _size_of(entry: _Entry) -> int:
    about = entry.about
    # Holes of sparse files need no space.
    return min(about.st_size, about.st_blocks * _BLOCK) if stat.S_ISREG(about.st_mode) else 0


# ---------------------------------------------------------------- the file


def _export(database: Database, store: IO[bytes]) -> int:
    """Write the store into a file. Return the number of its jobs."""
    num_jobs = 0
    is_jobs = False
    for line in export.export(database):
        if line.startswith(b"{"):
            is_jobs = msgspec.json.decode(line)["table"] == "jobs"
        else:
            num_jobs += is_jobs
        store.write(line)
    return num_jobs


class _HashingFile:
    """A file that computes the SHA-256 of the bytes that are written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.sha256.update(content)
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()


class _PartsReader(io.RawIOBase):
    """Reads given parts of a file in order. If the file was truncated meanwhile, the missing bytes are zeros."""

    def __init__(self, descriptor: int, stretches: list[tuple[int, int]], before: bytes, note: Callable[[int], None]):
        self._descriptor = descriptor
        self._stretches = [stretch for stretch in stretches if stretch[1]]
        self._before = before
        self._note = note

    def read(self, size: int = -1) -> bytes:
        found = self._before[:size]
        self._before = self._before[size:]
        while self._stretches and len(found) < size:
            at, left = self._stretches[0]
            wanted = min(left, size - len(found))
            read = os.pread(self._descriptor, wanted, at) or b"\0" * wanted
            found += read
            self._note(len(read))
            self._stretches[0] = (at + len(read), left - len(read))
            if len(read) == left:
                self._stretches.pop(0)
        return found


class _Writer:
    def __init__(self, file: BinaryIO, num_bytes: int, report: ReportProgress) -> None:
        self._file = _HashingFile(file)
        self._tar = tarfile.TarFile(
            fileobj=cast("Any", self._file), mode="w", format=tarfile.PAX_FORMAT, copybufsize=_CHUNK_BYTES
        )
        self._num_bytes = num_bytes
        self._num_done = 0
        self._num_files = 0
        self._report = report

    def add_text(self, name: str, content: bytes) -> None:
        found = tarfile.TarInfo(name)
        found.size, found.mode = len(content), 0o600
        self._tar.addfile(found, io.BytesIO(content))

    def add_store(self, store: IO[bytes]) -> None:
        found = tarfile.TarInfo(STORE)
        found.size, found.mode = os.fstat(store.fileno()).st_size, 0o600
        self._tar.addfile(found, _PartsReader(store.fileno(), [(0, found.size)], b"", self._note))

    def add(self, entry: _Entry) -> None:
        """Add a file, a folder or a link. Skips pipes, sockets, devices and deleted entries."""
        kind = stat.S_IFMT(entry.about.st_mode)
        if kind == stat.S_IFREG:
            self._add_file(entry)
        elif kind in (stat.S_IFDIR, stat.S_IFLNK):
            found = _describe(entry, entry.about)
            found.type = tarfile.DIRTYPE if kind == stat.S_IFDIR else tarfile.SYMTYPE
            if kind == stat.S_IFLNK:
                try:
                    found.linkname = os.readlink(entry.path.name, dir_fd=entry.folder)
                except OSError as error:
                    if error.errno in (*_NOT_THERE, errno.EINVAL):
                        return  # it is no longer a link
                    raise
            self._tar.addfile(found)

    def close(self) -> int:
        """Write the checksum and the end of the file. Return the number of files."""
        self.add_text(CHECKSUM, msgspec.json.encode(Checksum(self._file.sha256.hexdigest(), self._num_files)))
        self._tar.close()
        self._report(self._num_bytes, self._num_bytes)
        return self._num_files

    def _add_file(self, entry: _Entry) -> None:
        with contextlib.ExitStack() as stack:
            descriptor = entry.held
            if descriptor is None:
                descriptor = _open_file(entry)
                if descriptor is None:
                    return
                stack.callback(os.close, descriptor)
            about = os.fstat(descriptor)
            found = _describe(entry, about)
            stretches, before = [(0, about.st_size)], b""
            if about.st_blocks * _BLOCK < about.st_size:
                stretches = list(_find_data(descriptor, about.st_size))
                before = _make_sparse(found, about.st_size, stretches)
            found.size = len(before) + sum(length for _, length in stretches)
            self._tar.addfile(found, _PartsReader(descriptor, stretches, before, self._note))
            self._num_files += 1

    def _note(self, num_bytes: int) -> None:
        self._num_done += num_bytes
        self._report(min(self._num_done, self._num_bytes), self._num_bytes)


def _describe(entry: _Entry, about: os.stat_result) -> tarfile.TarInfo:
    found = tarfile.TarInfo(f"{FILES}/{entry.name}")
    found.mode = stat.S_IMODE(about.st_mode)
    found.uid, found.gid, found.mtime = about.st_uid, about.st_gid, int(about.st_mtime)
    return found


def _find_data(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and length of each part of a file that is not a hole."""
    at = 0
    while at < size:
        try:
            begin = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # a hole up to the end
            raise
        at = min(os.lseek(descriptor, begin, os.SEEK_HOLE), size)
        if at > begin:
            yield begin, at - begin


def _make_sparse(found: tarfile.TarInfo, size: int, stretches: list[tuple[int, int]]) -> bytes:
    """Describe a sparse file as GNU tar does (version 1.0). Return the bytes that come before its data."""
    found.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": found.name,
        "GNU.sparse.realsize": str(size),
    }
    # The end of the file is listed too, so that a hole at the end is kept.
    listed = [*stretches, (size, 0)]
    numbers: list[Any] = [len(listed), *(number for stretch in listed for number in stretch)]
    text = "".join(f"{number}\n" for number in numbers).encode()
    return text + b"\0" * (-len(text) % _BLOCK)


@contextlib.contextmanager
def _scratch_beside(file: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a temporary file beside another one, which only its owner can read. Delete it unless it was renamed."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            yield opened, path
    finally:
        path.unlink(missing_ok=True)


def _put_in_place(scratch: Path, file: Path) -> None:
    if file.exists():
        raise UsageError(f"Cannot write the backup {file}: it exists already. Name another file.")
    scratch.rename(file)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
