"""A job's lock: one driver has it, and a process that only reads does not block it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.control.drivers import process
from legato.control.drivers.drivers import DriverOrder
from legato.control.drivers.process import ORDER_FILE, LocalOrder
from legato.core.errors import JobDriven
from legato.core.spec import JobSpec
from legato.driver import journal
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory, Outcome

JOB = "j-0000000001"


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    return JobDirectory(tmp_path / JOB)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let time pass by sleeping alone; returns the moments at which a caller slept."""
    slept: list[float] = []
    monkeypatch.setattr(journal.time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(journal.time, "sleep", slept.append)
    return slept


def test_a_second_driver_is_refused_after_a_while(directory: JobDirectory, clock: list[float]) -> None:
    directory.lock()
    second = JobDirectory(directory.path)
    with pytest.raises(JobDriven, match=f"Cannot run job '{JOB}': a job of this name is running"):
        second.lock()
    assert sum(clock) == pytest.approx(1.0, abs=0.05)
    directory.unlock()
    second.lock()
    assert directory.is_locked()


def test_a_driver_waits_for_who_only_looks(directory: JobDirectory, clock: list[float]) -> None:
    """Someone asks whether the job is driven at the very moment at which its driver begins."""
    directory.lock()
    directory.unlock()
    looking = os.open(directory.path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert not directory.is_locked(), "two that look do not take each other for a driver"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(journal.time, "sleep", lambda _seconds: os.close(looking))
        directory.lock()
    assert JobDirectory(directory.path).is_locked()


def test_looking_takes_nothing_that_a_driver_could_miss(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.lock()
    directory.unlock()
    taken: list[int] = []
    real: Callable[[int, int], None] = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        taken.append(how)
        real(descriptor, how)

    monkeypatch.setattr(journal.fcntl, "flock", flock)
    assert not directory.is_locked()
    assert taken == [fcntl.LOCK_SH | fcntl.LOCK_NB]


@pytest.mark.parametrize("later", [False, True])
def test_a_driver_that_finds_another_one_writes_no_outcome(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    """Nor does it where the other one has ended a moment later."""
    spec = JobSpec(name=JOB, program=("p.py",), directory=str(directory.path), num_workers=1, max_workers=1)
    order = DriverOrder(job=JOB, attempt=1, spec=spec, slots=("n/0",))
    other = JobDirectory(directory.path)
    other.lock()
    (directory.path / "p.py").touch()
    (directory.path / ORDER_FILE).write_bytes(
        msgspec.json.encode(LocalOrder(order=order, slots=("n/0",), devices=("cpu",)))
    )
    monkeypatch.setattr(journal, "_LOCK_LIMIT_S", 0.0)

    async def run(self: Any) -> Outcome:
        try:
            self._directory.lock()
        finally:
            if later:
                other.unlock()
        raise AssertionError("it got the lock")

    monkeypatch.setattr(Driver, "run", run)
    assert process.main(directory.path) == 1
    other.unlock()
    assert directory.read_journal() is None
