"""A driver that ends before its job does: workers that still train are not ended with it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.cli.local.reader import Reader

from legato.cli.local.foreground import Foreground
from legato.cli.terminal.display import Screen
from legato.core.errors import LegatoError, MachinesRefused, UsageError
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory
from legato.engines.local import LocalEngine


class BrokenEngine:
    """An engine that cannot read the state of its workers any more."""

    is_open = True

    def __init__(self, last_running: dict[int, int]) -> None:
        self.last_running = last_running
        self.done: list[str] = []
        self.remarks: tuple[str, ...] = ()

    async def running(self) -> dict[int, int]:
        raise LegatoError("the engine is broken")

    async def detach(self) -> None:
        self.done.append("detached")

    async def close(self) -> None:
        self.done.append("closed")
        self.remarks = ("the machine b cannot be used: it has no Legato",)


class BrokenDriver:
    def __init__(self, error: LegatoError = LegatoError("the engine is broken")) -> None:  # noqa: B008 -- never changed
        self.error = error

    async def run(self) -> Any:
        raise self.error


class Listener:
    """A screen that keeps messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def show_message(self, text: str, *, problem: bool = False) -> None:
        assert problem
        self.messages.append(text)


@pytest.mark.parametrize(("last_running", "want"), [({1: 4711}, "detached"), ({}, "closed")])
def test_workers_are_left_to_the_next_driver(tmp_path: Path, last_running: dict[int, int], want: str) -> None:
    engine = BrokenEngine(last_running)
    foreground = Foreground(JobDirectory(tmp_path), cast("Screen", Listener()))
    with pytest.raises(LegatoError, match="broken"):
        asyncio.run(foreground.drive(cast("Driver", BrokenDriver()), cast("LocalEngine", engine)))
    assert engine.done == [want]
    assert foreground.left_running == bool(last_running)


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (UsageError("its only slots are a/0"), ["legato: the machine b cannot be used: it has no Legato."]),
        (MachinesRefused("no machine can be used. b: it has no Legato", {"b": "it has no Legato"}), []),
    ],
)
def test_a_job_that_cannot_start_says_which_machines_cannot_be_used(
    tmp_path: Path, error: LegatoError, want: list[str]
) -> None:
    screen = Listener()
    foreground = Foreground(JobDirectory(tmp_path), cast("Screen", screen))
    with pytest.raises(type(error)):
        asyncio.run(foreground.drive(cast("Driver", BrokenDriver(error)), cast("LocalEngine", BrokenEngine({}))))
    assert screen.messages == want


def test_what_a_worker_writes_as_the_main_one_before_its_status_comes_is_shown(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    directory.logs.mkdir(parents=True)
    screen = Reader()
    foreground = Foreground(directory, cast("Screen", screen))
    logs = [directory.logs / f"worker-{worker}.log" for worker in (0, 1)]
    logs[0].write_text("0 is the main worker\n")
    logs[1].write_text("1 is not\n")
    foreground.on_status({"workers": [{"worker": 0, "rank": 0}, {"worker": 1, "rank": 1}]})
    with logs[1].open("a") as log:
        log.write("1 is the main worker\n")
    foreground.on_status({"workers": [{"worker": 1, "rank": 0}]})
    foreground._show_output(whole=True)
    assert screen.output == "0 is the main worker\n1 is the main worker\n"


class ClosedScreen:
    """The screen of a terminal whose output nothing reads any more."""

    def show_message(self, text: str, *, problem: bool = False) -> None:
        raise BrokenPipeError


class StoppedDriver:
    def __init__(self) -> None:
        self.stops: list[tuple[str, bool]] = []

    def stop(self, reason: str, *, now: bool = False) -> None:
        self.stops.append((reason, now))


def test_a_signal_stops_the_job_although_the_reader_of_its_output_is_gone(tmp_path: Path) -> None:
    foreground, driver = Foreground(JobDirectory(tmp_path), cast("Screen", ClosedScreen())), StoppedDriver()
    foreground._begun = True
    for number in (signal.SIGTERM, signal.SIGINT):
        foreground._interrupt(cast("Driver", driver), cast("asyncio.Future[Any]", None), number)
    assert driver.stops == [("SIGTERM", False), ("Ctrl-C again", True)]
