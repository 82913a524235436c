"""Acts as WMLA's driver: rank 0 passes every entry of the training log to the driver's loggers, once.

Rank 0 writes each entry to ``history.jsonl`` and reads it from there. A worker that becomes rank 0 *replays* this
history into its own new loggers. They write into a scratch directory; at the end of the replay, the files there replace
the old ones. So the files are complete, no line is in them twice, and a logger that collects values gets all of them.
A long replay runs in parts between the steps, so the training continues. Decides nothing about the training.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from legato.compat.wmla import names
from legato.compat.wmla.fabric.loggers import Listener
from legato.compat.wmla.fabric.training_log import Entry, TrainingLog

_NUMBERED: Final = re.compile(rb'\{"n": ([0-9]+), ')

_MAX_FIRST_PART_S: Final = 1.0
"""Maximum time of the first part of a replay, during which the training waits."""

_MAX_SHARE: Final = 0.25
"""Maximum time of each later part, as a share of the time since the last part."""

_MAX_CLOSE_S: Final = 5.0
"""Maximum time that a worker that leaves spends on the rest of a replay."""


class LogReplayer:
    """Passes the entries of the training log to the driver's loggers.

    Args:
        directory: the driver's log directory.
        worker: number of this worker.
        clock: returns seconds since 1970. Its time at construction is the start of the training, unless there is a
            history, which has the start.
        timer: returns monotonic seconds.

    Attributes:
        directory: where the loggers write now: the log directory, or the scratch directory during a replay.
    """

    def __init__(
        self,
        directory: Path,
        worker: int,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        self._home = directory
        self._scratch = directory.with_name(f".{directory.name}.{worker}")
        self._began_at = clock()
        self._timer = timer
        self._listeners: list[Listener] = []
        self._file: TextIO | None = None
        self._pending: BinaryIO | None = None
        self._last = 0
        self._last_ended_at = 0.0

    def add(self, listener: Listener) -> None:
        """Add a receiver of all entries. Call this before the first `pass_on`."""
        self._listeners.append(listener)

    def delete_history(self) -> None:
        """Delete the history of an earlier training. A program outside of a job does this, because it never resumes."""
        (self._home / names.HISTORY_FILE).unlink(missing_ok=True)

    def pass_on(self, log: TrainingLog) -> None:
        """Pass on the entries since the last call; the first call begins with the first entry of the job.

        A long history is passed on in parts. Each call passes on at least one entry more than the log has new ones, so
        the replay ends.
        """
        if not log.is_live:
            # This worker has not received the job's state yet.
            return
        started_at = self._timer()
        allowed_s = _MAX_SHARE * (started_at - self._last_ended_at)
        if self._file is None:
            self._start_replay(log)
            allowed_s = _MAX_FIRST_PART_S
        num_new = self._write(log)
        with self._as_driver():
            self._catch_up(lambda num_passed: num_passed <= num_new or self._timer() - started_at < allowed_s)
        self._last_ended_at = self._timer()

    def end(self, log: TrainingLog) -> None:
        """Pass on all pending entries, and then the end of the training."""
        self.pass_on(log)
        with self._as_driver():
            self._catch_up(lambda _: True)
            for listener in self._listeners:
                listener.end()

    def close(self) -> None:
        """Pass on pending entries for at most 5 seconds, and close the history.

        If this worker leaves before the training ends, the next rank 0 replays the whole history.
        """
        if self._file is None or self._pending is None or self._file.closed:
            return
        started_at = self._timer()
        with self._as_driver():
            self._catch_up(lambda _: self._timer() - started_at < _MAX_CLOSE_S)
        self._file.close()
        self._pending.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # ------------------------------------------------------------ inside

    def _write(self, log: TrainingLog) -> int:
        """Write the new entries to the history, and return their number."""
        assert self._file is not None
        new = log.recent(self._last)
        for entry in new:
            self._file.write(json.dumps(entry) + "\n")
            self._last = entry["n"]
        self._file.flush()
        return len(new)

    def _catch_up(self, may_continue: Callable[[int], bool]) -> None:
        """Pass entries of the history to the listeners until none is left or ``may_continue`` returns False.

        Args:
            may_continue: receives the number of entries that this call has passed on.
        """
        assert self._pending is not None
        num_passed = 0
        while may_continue(num_passed):
            line = self._pending.readline()
            if not line:
                self._publish_files()
                return
            entry: Entry = json.loads(line)
            for listener in self._listeners:
                listener.receive(entry)
            num_passed += 1

    def _start_replay(self, log: TrainingLog) -> None:
        """Copy the known history, add the new entries to it, and open it at its beginning."""
        for left in self._home.parent.glob(f".{self._home.name}.*"):
            # Scratch directories of workers that died during their replay.
            shutil.rmtree(left, ignore_errors=True)
        self._home.mkdir(parents=True, exist_ok=True)
        self._scratch.mkdir()
        history, scratch = (directory / names.HISTORY_FILE for directory in (self._home, self._scratch))
        began_at, num_known = copy_history(history, scratch, log.num_entries)
        self._began_at = self._began_at if began_at is None else began_at
        self._file = scratch.open("a")
        if began_at is None:
            self._file.write(json.dumps({"n": 0, "began_at": self._began_at}) + "\n")
        self._last = num_known
        num_new = self._write(log)
        if num_known + num_new != log.num_entries:
            sys.stderr.write(
                f"legato: {log.num_entries - num_known - num_new} of {log.num_entries} entries are missing in "
                f"{history}, so the loggers do not get them.\n"
            )
        # Now, not at the end: if this worker dies during the replay, the next rank 0 needs the new entries.
        scratch.replace(history)
        self._pending = history.open("rb")
        self._pending.readline()
        self.directory = self._scratch
        with self._as_driver():
            for listener in self._listeners:
                listener.begin(self._began_at)

    def _publish_files(self) -> None:
        """Replace the files in the log directory by those that the loggers have written during the replay."""
        if self.directory != self._home:
            self.directory = self._home
            _replace_files(self._scratch, self._home)

    @contextlib.contextmanager
    def _as_driver(self) -> Iterator[None]:
        own = os.environ.get("LOG_DIR")
        os.environ["LOG_DIR"] = str(self.directory)
        try:
            yield
        finally:
            if own is None:
                del os.environ["LOG_DIR"]
            else:
                os.environ["LOG_DIR"] = own


def copy_history(path: Path, target: Path, num_entries: int) -> tuple[float | None, int]:
    """Copy the entries of a history up to a number, and return the start of the training and the last entry's number.

    Later entries belong to steps that were lost with a worker. An incomplete last line is not copied either.

    Returns:
        None and 0 if there is no history.
    """
    began_at: float | None = None
    last = 0
    with contextlib.suppress(FileNotFoundError), path.open("rb") as known, target.open("wb") as copy:
        for line in known:
            number = _number_of(line)
            if number is None or number > num_entries:
                break
            if began_at is None:
                began_at = json.loads(line)["began_at"]
            copy.write(line)
            last = number
    return began_at, last


def _number_of(line: bytes) -> int | None:
    r"""Return the number of an entry without decoding the rest; None if the line is incomplete.

    >>> _number_of(b'{"n": 12, "kind": "train"}\n'), _number_of(b'{"n": 12, "ki')
    (12, None)
    """
    found = _NUMBERED.match(line)
    return int(found[1]) if found and line.endswith(b"}\n") else None


def _replace_files(scratch: Path, home: Path) -> None:
    """Move the files of a directory over those of another one."""
    for path in _files_below(scratch):
        place = home / path.relative_to(scratch)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
    shutil.rmtree(scratch, ignore_errors=True)


def _files_below(directory: Path) -> Sequence[Path]:
    return [path for path in directory.rglob("*") if not path.is_dir()]
