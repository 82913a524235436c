"""Acts as WMLA's driver: rank 0 passes every entry of the log to its loggers once.

Each entry is written to ``history.jsonl`` first, and read from there. Who becomes rank 0 *replays* that history into
its own, fresh loggers, which write into a scratch directory whose files then take the places of the old ones; so the
files are whole and nothing is in them twice, and a logger that gathers values has all of them. A long replay is done in
parts, between the steps of a training that goes on meanwhile. Decides nothing about the training.
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

_AT_ONCE_S: Final = 1.0
"""How long a replay may hold up the training in one piece."""

_SHARE: Final = 0.25
"""After that, how much of the time of a step may go into the replay after it."""

_PARTING_S: Final = 5.0
"""How long a replay may hold up a worker that leaves."""


class LogReplayer:
    """Tells the driver's loggers.

    Args:
        directory: the driver's log directory.
        worker: number of this worker.
        clock: seconds since 1970; that of its making is when the training began, unless a history knows better.
        timer: seconds of a clock that only goes forward.

    Attributes:
        directory: where the loggers write at this moment.
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
        self._unheard: BinaryIO | None = None
        self._last = 0
        self._left_at = 0.0

    def add(self, listener: Listener) -> None:
        """Add a receiver, from the first entry on."""
        self._listeners.append(listener)

    def forget(self) -> None:
        """Forget the entries of an earlier training: without a job, there is nothing to resume."""
        (self._home / names.HISTORY_FILE).unlink(missing_ok=True)

    def tell(self, log: TrainingLog) -> None:
        """Pass on the entries since the last call; the first time, all entries of the job.

        A long history is passed on in parts: each later call passes at least one entry more than it brought.
        """
        if not log.is_live:
            # A worker on its way to where its job is knows nothing yet.
            return
        entered_at = self._timer()
        allowed_s = _SHARE * (entered_at - self._left_at)
        if self._file is None:
            self._take_over(log)
            allowed_s = _AT_ONCE_S
        num_new = self._write(log)
        with self._as_driver():
            self._catch_up(lambda num_told: num_told <= num_new or self._timer() - entered_at < allowed_s)
        self._left_at = self._timer()

    def end(self, log: TrainingLog) -> None:
        """Tell that the training is over, and before that all that is not told yet."""
        self.tell(log)
        with self._as_driver():
            self._catch_up(lambda _: True)
            for listener in self._listeners:
                listener.end()

    def close(self) -> None:
        """Tell what is not told yet, as far as that is quickly done, and close the history.

        What is left then, where a worker leaves before the training ends, the history knows.
        """
        if self._file is None or self._unheard is None or self._file.closed:
            return
        entered_at = self._timer()
        with self._as_driver():
            self._catch_up(lambda _: self._timer() - entered_at < _PARTING_S)
        self._file.close()
        self._unheard.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # ------------------------------------------------------------ inside

    def _write(self, log: TrainingLog) -> int:
        """Write down what has come, and return how many entries these are."""
        assert self._file is not None
        new = log.recent(self._last)
        for entry in new:
            self._file.write(json.dumps(entry) + "\n")
            self._last = entry["n"]
        self._file.flush()
        return len(new)

    def _catch_up(self, may_go_on: Callable[[int], bool]) -> None:
        """Have the listeners hear what is written down and was not told to them.

        Args:
            may_go_on: takes the number of entries that were passed on in this call.
        """
        assert self._unheard is not None
        num_told = 0
        while may_go_on(num_told):
            line = self._unheard.readline()
            if not line:
                self._settle()
                return
            entry: Entry = json.loads(line)
            for listener in self._listeners:
                listener.hear(entry)
            num_told += 1

    def _take_over(self, log: TrainingLog) -> None:
        """Continue the history, and pass it on from its beginning."""
        for left in self._home.parent.glob(f".{self._home.name}.*"):
            # Of those who died before they had told all.
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
                f"{history}: the loggers do not get them.\n"
            )
        # At once: if this worker dies before all is passed on, the next one needs the entries that came in between.
        scratch.replace(history)
        self._unheard = history.open("rb")
        self._unheard.readline()
        self.directory = self._scratch
        with self._as_driver():
            for listener in self._listeners:
                listener.begin(self._began_at)

    def _settle(self) -> None:
        """Let what the loggers have written take its place, now that it is whole."""
        if self.directory != self._home:
            self.directory = self._home
            _take_places(self._scratch, self._home)

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
    """Copy the entries of a training, up to one of them, and return its start and the number of the last entry.

    Later entries came from a worker whose steps were lost with it; so did a torn last line.

    Returns:
        None and 0 where there is no history.
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
    r"""Return the number of an entry, without reading the rest of it; None: it is torn.

    >>> _number_of(b'{"n": 12, "kind": "train"}\n'), _number_of(b'{"n": 12, "ki')
    (12, None)
    """
    found = _NUMBERED.match(line)
    return int(found[1]) if found and line.endswith(b"}\n") else None


def _take_places(scratch: Path, home: Path) -> None:
    """Let the files of a directory take the places of those in another one."""
    for path in _files_below(scratch):
        place = home / path.relative_to(scratch)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
    shutil.rmtree(scratch, ignore_errors=True)


def _files_below(directory: Path) -> Sequence[Path]:
    return [path for path in directory.rglob("*") if not path.is_dir()]
