"""A job's directory: its files, its lock, and the journal from which a new driver adopts a job.

Layout of ``$LEGATO_HOME/jobs/NAME``: ``driver.json`` (the driver's address, and the secret of clients),
``address.json`` (the driver's address, for workers), ``journal.json``, ``term`` (see `JobDirectory.reserve_term`),
``lock``, ``events.jsonl``, ``metrics.jsonl``,
``ledger.jsonl``, ``program.json`` (the sources at its start), ``logs/worker-N.log``, ``checkpoints/``, ``guest/``
(files of its plugin, if it has one). Decides nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from legato.core.errors import JobDriven, UsageError
from legato.core.job_user import JobUser
from legato.core.places import move_paths
from legato.core.program import ProgramSnapshot
from legato.core.spec import JobSpec, check_name
from legato.driver.events import MembershipSnapshot
from legato.driver.numbered_slots import name_slots, number_journal
from legato.driver.tokens import name_attempt
from legato.system.decoding import convert, decode
from legato.system.hosts import name_this_machine
from legato.system.plain_files import make_folder_for, open_to

T = TypeVar("T")

LOCK: Final = "lock"
"""The name of the file that a job's driver locks, or its beginning."""

_BLOCK: Final = 4096  # of a disk
_TAIL_BYTES: Final = 16384  # far more lines than reports of workers can be out of order
_LOCK_LIMIT_S: Final = 1.0  # a driver holds the lock for longer; a process that tests it only for a moment
_LOCK_POLL_S: Final = 0.02
_PASS_THROUGH: Final = 0o710  # the group may open files of the folder by name, but not list it
_READ: Final = 0o640


class Outcome(msgspec.Struct, frozen=True):
    """How a job ended.

    Args:
        outcome: ``succeeded``, ``unsaved``, ``failed`` or ``stopped``.
        exit_code: what ``legato run`` exits with.
        reason: one line.
        refusals: nodes that refused it, and why; only if it failed because of that.
    """

    outcome: str
    exit_code: int
    reason: str
    refusals: dict[str, str] = {}


class DriverFile(msgspec.Struct, frozen=True):
    """The address and secret of a driver; only the driver's user can read this file.

    Args:
        url: for workers; clients use ``/client`` at the same place.
        token: authenticates clients, which may control the job.
        pid: of the driver.
        certificate: of the driver (PEM). "": it uses no TLS.
    """

    url: str
    token: str
    pid: int
    certificate: str = ""


class Address(msgspec.Struct, frozen=True):
    """The address of a driver, for the workers of its job. It contains no secret: each worker has a separate token.

    Args:
        url: for workers.
        attempt: a name for the job's attempt, the same for all its workers and for no other attempt.
        certificate: of the driver (PEM). "": it uses no TLS.
    """

    url: str
    attempt: str
    certificate: str = ""


class JobJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a new driver needs.

    Args:
        spec: the job.
        token: authenticates clients, which may control the job; the tokens of workers are derived from it.
        attempt: number of the attempt; a job that was stopped and continues begins another one.
        snapshot: of the membership.
        outcome: None while the job runs, or its driver died.
        has_worker_tokens: False: an earlier release started this attempt, and its workers use the token of clients.
        places: the folders that paths of the spec may be in, with their locations when this was written.
        num_steps: all steps of the job. None: not known.
        term: of the newest driver; 0: an earlier release wrote this.
    """

    spec: JobSpec
    token: str
    attempt: int = 1
    snapshot: MembershipSnapshot | None = msgspec.field(default=None, name="book")  # the name in existing journals
    outcome: Outcome | None = None
    has_worker_tokens: bool = False
    places: dict[str, str] = {}
    num_steps: int | None = None
    term: int = 0


class _Term(msgspec.Struct, frozen=True):
    """The field that is read of a journal before it is replaced."""

    term: int = 0


class Committed(msgspec.Struct, frozen=True):
    """The fields that are read of a line of the ledger."""

    step: int
    epoch: int | None = None


class _Losses(msgspec.Struct, frozen=True):
    """The fields that are read of a line of step losses."""

    step: list[int]
    loss: list[float | None]


class _Logged(msgspec.Struct, frozen=True):
    """The fields that are read of a line of metrics."""

    values: dict[str, float | None]


class JobDirectory:
    """The files of one job.

    Args:
        path: need not exist yet.
        user: the system user of the job's processes, if not the user of this process. That user owns the checkpoints
            and logs; the job cannot access the other files.
        lock_name: the file that this machine's driver locks. None: ``lock``, and `is_locked` tests the files of all
            machines.
    """

    def __init__(self, path: Path, user: JobUser | None = None, lock_name: str | None = None) -> None:
        self.path = path
        self.user = user
        self.lock_name = lock_name
        self.driver_file = path / "driver.json"
        self.address_file = path / "address.json"
        self.program_file = path / "program.json"
        self.journal_file = path / "journal.json"
        self.term_file = path / "term"
        self.events_file = path / "events.jsonl"
        self.metrics_file = path / "metrics.jsonl"
        self.ledger_file = path / "ledger.jsonl"
        self.losses_file = path / "losses.jsonl"
        self.system_file = path / "system.jsonl"
        self.logs = path / "logs"
        self.checkpoints = path / "checkpoints"
        self.guest = path / "guest"
        self.work = path / "work"
        self.results = path / "results"
        self._lock: int | None = None

    @classmethod
    def of(cls, name: str, home: Path | None = None) -> JobDirectory:
        """Return the directory of a job by name."""
        check_name(name)
        return cls(find_jobs_directory(home) / name)

    def log_path(self, worker: int) -> Path:
        """Return the path of a worker's log."""
        return self.logs / f"worker-{worker}.log"

    # ------------------------------------------------------------ lock

    def make(self) -> None:
        """Make the directory if it does not exist. Raises OSError if files cannot be made in it."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        os.close(self._open_lock())

    def lock(self) -> None:
        """Make the directory, and hold its lock as the job's only driver until `unlock` or the end of this process.

        Raises:
            JobDriven: another driver has the lock.
        """
        self.make()
        descriptor = self._open_lock()
        try:
            self._take(descriptor)
            self.share_with_job()
        except BaseException:
            os.close(descriptor)
            raise
        self._lock = descriptor

    def _open_lock(self) -> int:
        return os.open(self.path / (self.lock_name or LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def share_with_job(self) -> None:
        """Give the job's user the folders that its processes write; do nothing if that is the user of this process.

        Raises:
            LegatoError: the folders cannot be given.
        """
        if self.user is not None:
            open_to(self.path, self.user, _PASS_THROUGH)
            open_to(self.logs, self.user, _PASS_THROUGH)
            make_folder_for(self.checkpoints, self.user)
            if self.work.exists():
                make_folder_for(self.work, self.user)  # in a restored home, this process owns all files at first

    def _take(self, descriptor: int) -> None:
        """Take the lock; wait for processes that are just testing it."""
        give_up_at = time.monotonic() + _LOCK_LIMIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    name = self.path.name
                    raise JobDriven(
                        f"Cannot run job '{name}': a job of this name is running. Watch it with "
                        f"'legato status {name}', stop it with 'legato stop {name}', or choose another name."
                    ) from None
            else:
                return
            time.sleep(_LOCK_POLL_S)

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_locked(self) -> bool:
        """Return whether a driver has the job now.

        Tests with a shared lock: several processes that test at the same time do not take one another for a driver, and
        a driver that starts meanwhile waits for them.
        """
        files = [self.path / self.lock_name] if self.lock_name is not None else self.path.glob(f"{LOCK}*")
        return any(is_held(file) for file in files)

    # ------------------------------------------------------------ files

    def read_journal(self, node: str | None = None) -> JobJournal | None:
        """Return the journal, None if there is none. Paths are adapted if the home was moved.

        Args:
            node: the name of the machine whose slots an earlier release wrote as numbers. None: of this machine.

        Raises:
            UsageError: the journal cannot be read.
        """
        try:
            content = msgspec.json.decode(self.journal_file.read_bytes())
            content = name_slots(content, name_this_machine if node is None else lambda: node)
            journal = decode(msgspec.json.encode(content), JobJournal)
            moves = find_moves(journal.spec, journal.places, self.path)
            return msgspec.structs.replace(journal, spec=move_record(journal.spec, moves))
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise UsageError(
                f"Cannot read the journal {self.journal_file}: {error}. It was written by another version of Legato; "
                "move the job's directory away to start from scratch."
            ) from error

    def read_term(self) -> int:
        """Return the highest term that a driver has had, or that a server has reserved with `reserve_term`.

        It is 0 if there is no journal, or if it cannot be read as a journal.

        Raises:
            OSError: the disk does not answer.
        """
        term = self._read_reserved()
        try:
            return max(term, decode(self.journal_file.read_bytes(), _Term).term)
        except (FileNotFoundError, msgspec.DecodeError):
            return term

    def reserve_term(self, term: int) -> None:
        """Let all drivers with lower terms stop leading. The journal stays as the last of them has written it."""
        if self._read_reserved() < term:
            replace_file(self.term_file, f"{term}\n".encode())

    def _read_reserved(self) -> int:
        try:
            return int(self.term_file.read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def write_journal(
        self,
        journal: JobJournal,
        *,
        numbers_slots: bool = False,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Replace the journal atomically: a crash leaves the old or the new one, complete.

        Args:
            journal: the new one.
            numbers_slots: write numbers of slots, for a server of an earlier release.
            check: called when the new content is on the disk, just before it replaces the old one. If it raises an
                error, the old one stays.
        """
        journal = msgspec.structs.replace(journal, places=find_places(self.path))
        content = msgspec.json.encode(number_journal(journal) if numbers_slots else journal)
        replace_file(self.journal_file, content, check)

    def read_driver_file(self) -> DriverFile | None:
        """Return the driver's address and secret, None if there is no driver."""
        try:
            return decode(self.driver_file.read_bytes(), DriverFile)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def read_last_committed(self) -> Committed | None:
        """Return the highest committed step in the ledger with its epoch, None if there is none."""
        found = _read_tail(self.ledger_file, Committed)
        return max(found, key=lambda committed: committed.step, default=None)

    def read_last_loss(self) -> float | None:
        """Return the loss of the last step that has one, or else the last loss that was logged.

        Returns:
            None: unknown. NaN: it is not finite.
        """
        steps = [
            pair for line in _read_tail(self.losses_file, _Losses) for pair in zip(line.step, line.loss, strict=False)
        ]
        logged = [line.values["loss"] for line in _read_tail(self.metrics_file, _Logged) if "loss" in line.values]
        if not steps and not logged:
            return None
        loss = max(steps, key=lambda pair: pair[0])[1] if steps else logged[-1]
        return math.nan if loss is None else loss  # JSON has no NaN

    def write_driver_file(self, driver_file: DriverFile) -> None:
        """Write the driver's address for clients, and without the secret for workers."""
        address = Address(driver_file.url, name_attempt(driver_file.token), driver_file.certificate)
        self.write_address(address)
        replace_file(self.driver_file, msgspec.json.encode(driver_file))

    def write_address(self, address: Address) -> None:
        """Write the driver's address for workers."""
        replace_small_file(self.address_file, msgspec.json.encode(address))
        if self.user is not None:
            open_to(self.address_file, self.user, _READ)

    def remove_driver_file(self) -> None:
        """Remove the driver's address, because the job has ended."""
        self.driver_file.unlink(missing_ok=True)
        self.address_file.unlink(missing_ok=True)

    def keep_program(self, program: ProgramSnapshot | None) -> None:
        """Write the sources of a job at its start; None: they are unknown."""
        self.program_file.unlink(missing_ok=True)
        if program is not None:
            replace_file(self.program_file, msgspec.json.encode(program))

    def set_aside_records(self) -> None:
        """Keep records, checkpoints and results of the last run under this name as ``*.old``: the new run has none.

        This matters most for checkpoints: if this run loses all its workers, it must not continue from another run's.
        """
        records = (self.events_file, self.metrics_file, self.ledger_file, self.losses_file, self.system_file)
        for kept in (*records, self.checkpoints, self.results, self.guest):
            if kept.exists():
                old = kept.with_name(kept.name + ".old")
                if old.is_dir():
                    shutil.rmtree(old)
                kept.replace(old)
        self.share_with_job()


def refuse_other_checkpoints(spec: JobSpec) -> None:
    """Raise UsageError if a directory that the user chose contains checkpoints of another run."""
    if spec.checkpoint_dir is not None and any(Path(spec.checkpoint_dir).glob("step-*.legato")):
        raise UsageError(
            f"Cannot start job '{spec.name}' from scratch: {spec.checkpoint_dir} holds checkpoints of an earlier run. "
            "Resume from them with --resume, or choose another --checkpoint-dir."
        )


PLATFORM_JOB: Final = re.compile(r"j-[0-9a-z]{10}")
"""What a platform calls its jobs, which may be in the same folder."""


def find_jobs_directory(home: Path | None = None) -> Path:
    """Return the folder of all jobs: ``jobs`` in ``home``, in ``$LEGATO_HOME`` or in the user's data directory."""
    if home is None:
        told = os.environ.get("LEGATO_HOME")
        home = Path(told) if told else Path.home() / ".local" / "share" / "legato"
    return home.absolute() / "jobs"


def explain_home_error(error: OSError) -> str | None:
    """Return a sentence about a file of Legato that cannot be read or written; None if the error concerns another file.

    Legato's files are in the home; parents of the home that could not be made count too.
    """
    home = find_jobs_directory().parent
    if not isinstance(error.filename, str) or not error.strerror:
        return None
    path = Path(error.filename)
    if home not in (path, *path.parents) and path not in home.parents:
        return None
    return (
        f"Cannot use {path}: {error.strerror}. Legato keeps the files of your jobs in {home}; "
        "make it writable for you, or set LEGATO_HOME to a directory that is."
    )


def iterate_jobs(home: Path | None = None) -> Iterator[JobDirectory]:
    """Yield the directories of all jobs on this machine, by name, without those of platforms."""
    root = find_jobs_directory(home)
    if root.is_dir():
        for path in sorted(root.iterdir()):
            if path.is_dir() and not PLATFORM_JOB.fullmatch(path.name):
                yield JobDirectory(path)


def list_platform_jobs(home: Path | None = None) -> list[JobDirectory]:
    """Return the directories of all jobs of a platform on this machine, sorted by id."""
    root = find_jobs_directory(home)
    found = sorted(root.iterdir()) if root.is_dir() else ()
    return [JobDirectory(path) for path in found if path.is_dir() and PLATFORM_JOB.fullmatch(path.name)]


def find_places(directory: Path) -> dict[str, str]:
    """Return the folders that may move, by name: the home of a job's directory, and Legato's package."""
    return {"home": str(directory.absolute().parent.parent), "legato": str(Path(__file__).parents[1])}


def find_moves(spec: JobSpec, places: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the folders that have moved since a job's spec was written: old → new.

    Args:
        spec: the spec as written.
        places: what `find_places` returned when it was written. Empty: an earlier release wrote it. The home is then
            known only if the working directory is the copy of the code in the job's directory.
        directory: present directory of the job.
    """
    now = find_places(directory)
    if not places:
        old, found, _ = f"{spec.directory}/".partition(f"/jobs/{directory.name}/work/")
        places = {"home": old} if found else {}
    return {old: now[name] for name, old in places.items() if name in now and old != now[name]}


def move_record(record: T, moves: Mapping[str, str]) -> T:
    """Return a record with adapted paths; ``moves`` as from `find_moves`."""
    return convert(move_paths(msgspec.to_builtins(record), moves), type(record)) if moves else record


def is_held(file: Path) -> bool:
    """Return whether a process holds the lock of a file; False without the file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def replace_file(path: Path, content: bytes, check: Callable[[], None] | None = None) -> None:
    """Write a file atomically, readable only by its user: a crash leaves the old or the new one, complete.

    Args:
        path: of the file.
        content: the new one.
        check: as in `JobDirectory.write_journal`.
    """
    # mkstemp makes the file readable by its owner alone, which files with a token need.
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check()
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replace_small_file(path: Path, content: bytes) -> None:
    """Write a JSON file as `replace_file` does, also on a full disk if the file is there: it is overwritten in place.

    Spaces fill the file to whole blocks, so other content of about this length needs no more room. Readers may see a
    mixture for a moment while the file is overwritten, so they read again what they cannot decode.

    Raises:
        OSError: the file cannot be written; ENOSPC: it is not there, or is too small.
    """
    padded = content.ljust(-(-len(content) // _BLOCK) * _BLOCK)
    try:
        replace_file(path, padded)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise error from None
        try:
            num_bytes = os.fstat(descriptor).st_size
            if num_bytes < len(content):
                raise
            os.pwrite(descriptor, content.ljust(num_bytes), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_tail(path: Path, kind: type[T]) -> list[T]:
    """Return the last records of a file that is only appended to; empty if there are none, or no file."""
    num_bytes = _TAIL_BYTES
    while True:
        try:
            with path.open("rb") as file:
                begin = max(path.stat().st_size - num_bytes, 0)
                file.seek(begin)
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            # The first line may be incomplete because reading began in it, the last one because of a crash.
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(decode(line, kind))
        if found or begin == 0:
            return found
        num_bytes *= 8  # a line with the losses of many short steps is long
