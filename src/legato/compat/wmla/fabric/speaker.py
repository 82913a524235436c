"""Speaks in the place of WMLA's driver: tells its loggers every entry of the diary once, whoever is rank 0 at the time.

What is told is written to ``history.jsonl`` first. Who becomes rank 0 replays that history into its own, fresh loggers,
which write into a scratch directory whose files then take the places of the old ones; so the files are whole and
nothing is in them twice, and a logger that gathers values has all of them. Decides nothing about the training.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from legato.compat.wmla import names
from legato.compat.wmla.fabric.diary import Diary, Entry
from legato.compat.wmla.fabric.loggers import Listener


class Speaker:
    """Tells the driver's loggers.

    Args:
        directory: the driver's log directory.
        worker: number of this worker.
        clock: seconds since 1970.

    Attributes:
        directory: where the loggers write at this moment.
    """

    def __init__(self, directory: Path, worker: int, clock: Callable[[], float] = time.time) -> None:
        self.directory = directory
        self._home = directory
        self._scratch = directory.with_name(f".{directory.name}.{worker}")
        self._clock = clock
        self._listeners: list[Listener] = []
        self._file: TextIO | None = None
        self._last = 0

    def add(self, listener: Listener) -> None:
        """Have somebody told from the beginning on."""
        self._listeners.append(listener)

    def forget(self) -> None:
        """Forget what was told of an earlier training: where there is no job, there is nothing to go on with."""
        (self._home / names.HISTORY_FILE).unlink(missing_ok=True)

    def tell(self, diary: Diary) -> None:
        """Tell what has come since it was told last; the first time, whatever the job has had."""
        if not diary.is_live:
            # A worker on its way to where its job is knows nothing yet.
            return
        if self._file is None:
            self._take_over(diary)
        with self._as_driver():
            for entry in diary.recent(self._last):
                self._tell(entry)

    def end(self, diary: Diary) -> None:
        """Tell that the training is over."""
        self.tell(diary)
        with self._as_driver():
            for listener in self._listeners:
                listener.end()

    def close(self) -> None:
        """Close the history."""
        if self._file is not None:
            self._file.close()

    # ------------------------------------------------------------ inside

    def _tell(self, entry: Entry) -> None:
        assert self._file is not None
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        self._last = entry["n"]
        for listener in self._listeners:
            listener.hear(entry)

    def _take_over(self, diary: Diary) -> None:
        began_at, known = read_history(self._home / names.HISTORY_FILE, diary.num_entries)
        began_at = self._clock() if began_at is None else began_at
        told = [*known, *diary.recent(known[-1]["n"] if known else 0)]
        if len(told) != diary.num_entries:
            sys.stderr.write(
                f"legato: {diary.num_entries - len(told)} of {diary.num_entries} entries are missing in "
                f"{self._home / names.HISTORY_FILE}: the loggers are not told of them.\n"
            )
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        self.directory = self._scratch
        self._file = (self._scratch / names.HISTORY_FILE).open("w")
        with self._as_driver():
            self._file.write(json.dumps({"n": 0, "began_at": began_at}) + "\n")
            for listener in self._listeners:
                listener.begin(began_at)
            for entry in told:
                self._tell(entry)
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


def read_history(path: Path, num_entries: int) -> tuple[float | None, list[Entry]]:
    """Return when a training began and what was told of it, up to an entry; nothing where there is no history.

    What lies behind that entry was told by somebody whose steps were lost with it; so was a torn last line.
    """
    began_at: float | None = None
    known: list[Entry] = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            try:
                entry: dict[str, Any] = json.loads(line)
            except ValueError:
                break
            if entry["n"] == 0:
                began_at = entry["began_at"]
            elif entry["n"] <= num_entries:
                known.append(entry)
    return began_at, known


def _take_places(scratch: Path, home: Path) -> None:
    """Let the files of a directory take the places of those in another one; the history, by which they hold, last."""
    files = sorted(_files_below(scratch), key=lambda path: path.name == names.HISTORY_FILE)
    for path in files:
        place = home / path.relative_to(scratch)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
    shutil.rmtree(scratch, ignore_errors=True)


def _files_below(directory: Path) -> Sequence[Path]:
    return [path for path in directory.rglob("*") if not path.is_dir()]
