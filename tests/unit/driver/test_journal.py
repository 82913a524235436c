"""A job's lock: one driver has it, and a process that only reads does not block it."""

from __future__ import annotations

import fcntl
import math
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


def test_the_last_loss_is_that_of_the_last_step_or_else_the_last_one_that_was_logged(directory: JobDirectory) -> None:
    directory.path.mkdir()
    assert directory.read_last_loss() is None
    directory.metrics_file.write_text(
        '{"step":1,"values":{"loss":0.5}}\n{"step":2,"values":{"accuracy":1.0}}\n{"step":3,"values":{"lo'
    )
    assert directory.read_last_loss() == 0.5
    # Reports of workers can be out of order, and the file is longer than what is read of it.
    old = '{"step":[1],"loss":[9.0]}\n' * 1000
    directory.losses_file.write_text(
        f'{old}{{"step":[7,8],"loss":[0.3,0.2]}}\n{{"step":[5],"loss":[0.4]}}\n{{"step":[9'
    )
    assert directory.read_last_loss() == 0.2
    # NaN is null in JSON. Another loss would hide that the training has diverged.
    directory.losses_file.write_text('{"step":[7,8],"loss":[0.3,null]}\n')
    loss = directory.read_last_loss()
    assert loss is not None and math.isnan(loss)
    # A worker that was disconnected reports the losses of many steps in one line.
    steps = list(range(1, 50_001))
    directory.losses_file.write_text(f'{{"step":{steps},"loss":{[1.0 / step for step in steps]}}}\n')
    assert directory.read_last_loss() == 1.0 / 50_000
