"""Watches one job, lists all jobs, and reads logs. Asks drivers and reads files; changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from legato.cli.local.resuming import find_resume_command
from legato.cli.terminal.display import WAITS_AT_START, LogFollower, Screen, main_worker
from legato.core import wire
from legato.core.errors import JobNotFound
from legato.driver import client
from legato.driver.journal import JobDirectory, Outcome, iterate_jobs
from legato.driver.log_marks import MARKS_FILE, Stretch, read_marks

_ASK_EVERY_S: Final = 0.25
_PATIENCE_S: Final = 5.0  # a driver that ends does not answer any more; it mostly needs less than this


def statuses(home: Path | None = None) -> list[dict[str, Any]]:
    """Return the status of every job on this machine: from its driver, or from its files if it has none."""
    return [found for directory in iterate_jobs(home) if (found := _status_or_none(directory.path.name, home))]


def status_of(name: str, home: Path | None = None) -> dict[str, Any]:
    """Return the status of one job.

    Raises:
        JobNotFound: there is no such job.
    """
    directory = JobDirectory.of(name, home)
    if directory.is_locked():
        if directory.read_driver_file() is None:
            return {"name": name, "state": "starting", "outcome": None}
        return client.request(name, wire.StatusRequest(), home).status
    known = _last_status(name, home)
    if known is None:
        client.find_job(name, home)  # raises, and says which jobs there are
        raise AssertionError(name)
    return known


def _status_or_none(name: str, home: Path | None) -> dict[str, Any] | None:
    try:
        return status_of(name, home)
    except JobNotFound:
        # It ended between two requests, or is just beginning.
        return _last_status(name, home)


def _last_status(name: str, home: Path | None) -> dict[str, Any] | None:
    known = client.last_status(name, home)
    return None if known is None else {**known, "go_on_with": find_resume_command(JobDirectory.of(name, home))}


def watch(name: str, screen: Screen, home: Path | None = None) -> Outcome | None:
    """Show a running job until it ends; None if its driver is gone and the job is not over.

    The lock alone shows whether there is a driver: a driver that ends stops answering long before it writes the
    outcome, and a stopped one may continue.
    """
    directory = JobDirectory.of(name, home)
    logs = LogFollower(directory.logs)
    main: int | None = None
    last_seq = 0
    has_status = was_starting = False
    heard_at: float | None = time.monotonic()
    while directory.is_locked():
        try:
            status = client.request(name, wire.StatusRequest(), home).status
        except JobNotFound:
            if not has_status and directory.read_driver_file() is None:
                was_starting = True
                screen.show_waiting(WAITS_AT_START)
            elif heard_at is not None and time.monotonic() - heard_at >= _PATIENCE_S:
                heard_at = None
                message = f"legato: the driver of job '{name}' lives but does not answer; waiting for it."
                screen.show_message(message, problem=True)
        else:
            has_status = True
            heard_at = time.monotonic()
            for event in status.get("events", ()):
                if event["seq"] > last_seq:
                    last_seq = event["seq"]
                    screen.show_event(event)
            speaker = main_worker(status)
            if speaker is not None and speaker != main:
                _show_output(screen, logs, main, whole=True)
                logs.switch(speaker)
                main = speaker
            logs.note_sizes(status)
            screen.show_status(status)
        _show_output(screen, logs, main)
        time.sleep(_ASK_EVERY_S)
    _show_output(screen, logs, main, whole=True)
    if was_starting and not has_status:
        # It ended before it began; the journal is that of an earlier run.
        return None
    journal = directory.read_journal()
    return journal.outcome if journal is not None else None


def _show_output(screen: Screen, logs: LogFollower, worker: int | None, *, whole: bool = False) -> None:
    if worker is not None:
        screen.show_output(logs.read(worker, whole=whole))


def read_logs(directory: JobDirectory, worker: int | None, *, follow: bool) -> Iterator[tuple[int, str]]:
    """Yield (worker, lines) of one worker's log, or of all: the existing lines by time, where times were recorded.

    Args:
        directory: of the job.
        worker: number of the worker; None for all.
        follow: continue while the job runs.

    Raises:
        JobNotFound: the log does not exist.
    """
    logs = LogFollower(directory.logs, from_start=True)
    known = list(logs.sizes())
    if worker is not None and worker not in known and not (follow and directory.is_locked()):
        there = ", ".join(str(number) for number in known) or "none"
        raise JobNotFound(f"Cannot show the log of worker {worker} of job '{directory.path.name}': there are {there}.")
    for stretch in _read_marks(directory) if worker is None else ():
        while text := logs.read(stretch.worker, upto=stretch.end):
            yield stretch.worker, text
    while True:
        # Ask before the last read, so that no line is missed that was written before the end.
        going_on = follow and directory.is_locked()
        for number in logs.sizes() if worker is None else [worker]:
            yield from _read_whole(logs, number, at_end=not going_on)
        if not going_on:
            return
        time.sleep(_ASK_EVERY_S)


def _read_marks(directory: JobDirectory) -> tuple[Stretch, ...]:
    try:
        with (directory.logs / MARKS_FILE).open("rb") as file:
            return read_marks(file)
    except OSError:
        # Without times the logs are shown one after the other.
        return ()


def _read_whole(logs: LogFollower, number: int, *, at_end: bool) -> Iterator[tuple[int, str]]:
    while text := logs.read(number, whole=at_end):
        yield number, text


def repeat(show: Callable[[], bool], every_s: float) -> None:
    """Call ``show`` until it returns that nothing more will come."""
    while show():
        time.sleep(every_s)
