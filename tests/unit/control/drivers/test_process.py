"""A driver's process hands its order on to the engine as it stands: slots, their devices, the job's variables."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.control.drivers import process
from legato.control.drivers.drivers import DriverOrder
from legato.control.drivers.local import LocalDrivers
from legato.control.drivers.process import LocalOrder, list_nodes, read_order
from legato.core.errors import LegatoError, UsageError
from legato.core.slots import index_of
from legato.core.spec import JobSpec
from legato.core.terms import first_term
from legato.driver.events import MembershipSnapshot
from legato.driver.journal import JobDirectory, JobJournal, Outcome

JOB = "j-0000000001"
DEVICES = ("cpu", "GPU-6e", "GPU-91")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Catch the engine and the driver that a process would make."""
    caught: dict[str, Any] = {}

    class Driver:
        def __init__(self, spec: JobSpec | None, engine: object, directory: JobDirectory, **options: Any) -> None:
            caught.update(options, spec=spec)

        async def run(self) -> Outcome:
            return Outcome("succeeded", 0, "as asked")

    def engine(job_directory: Path, devices: tuple[str, ...], **options: Any) -> None:
        caught.update(options, job_directory=job_directory, devices=devices)

    monkeypatch.setattr(process, "Driver", Driver)
    monkeypatch.setattr(process, "LocalEngine", engine)
    monkeypatch.setattr(LocalDrivers, "_spawn", lambda *_: None)
    return caught


def order(directory: Path, *slots: str) -> DriverOrder:
    spec = JobSpec(
        name=JOB,
        program=("train.py",),
        directory=str(directory),
        environment={"PYTHONPATH": "src"},
        max_workers=2,
        num_workers=len(slots),
    )
    return DriverOrder(job=JOB, attempt=1, spec=spec, slots=slots)


def test_slots_of_the_pool_become_devices_of_this_machine(tmp_path: Path, made: dict[str, Any]) -> None:
    (tmp_path / "train.py").touch()
    drivers = LocalDrivers(tmp_path, node="here", devices=DEVICES)
    asyncio.run(drivers.start(order(tmp_path, "here/2", "here/1")))
    found = read_order(tmp_path / JOB)
    assert found is not None
    asyncio.run(process._drive(found, JobDirectory(tmp_path / JOB)))
    assert made["job_directory"] == tmp_path / JOB
    assert [made["devices"][index_of(slot)] for slot in made["slots"]] == ["GPU-6e", "GPU-91"]
    assert (made["slots"], made["node"]) == (("here/1", "here/2"), "here")
    assert made["environment"] == {"PYTHONPATH": "src"}
    assert made["directory"] == str(tmp_path)


def test_the_next_driver_waits_for_no_machine_that_the_job_has_left(tmp_path: Path) -> None:
    found = LocalOrder(order=order(tmp_path, "a/0", "b/0"), slots=("a/0", "b/0"), devices=("cpu",), own_node="a")
    assert list_nodes(found, None) == ("a", "b"), "at the beginning of the attempt"
    left = MembershipSnapshot(last_view=1, next_worker=4, slots={3: "c/1"}, wanted=("a/0",))
    assert list_nodes(found, left) == ("a", "c"), "of its slots, and of a worker that may still run"
    assert list_nodes(found, msgspec.structs.replace(left, slots={}, wanted=())) == ("a", "b"), "never none"


def test_a_later_server_gives_the_driver_of_the_same_attempt_a_higher_term(
    tmp_path: Path, made: dict[str, Any]
) -> None:
    (tmp_path / "train.py").touch()
    drivers = LocalDrivers(tmp_path, node="here", devices=DEVICES)
    first = order(tmp_path, "here/1")
    for fence, term in ((2, first_term(2)), (3, first_term(3)), (1, first_term(3))):
        asyncio.run(drivers.start(msgspec.structs.replace(first, term=first_term(fence))))
        found = read_order(tmp_path / JOB)
        assert found is not None
        asyncio.run(process._drive(found, JobDirectory(tmp_path / JOB)))
        assert made["term"] == term
        assert found.slots == ("here/1",)


@pytest.mark.parametrize("is_late", [False, True])
def test_an_attempt_that_cannot_start_keeps_the_term_and_ends_no_job_of_a_later_server(
    tmp_path: Path, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    async def refuse(*_: Any) -> None:
        raise UsageError("no machine can be used")

    monkeypatch.setattr(process, "_drive", refuse)
    again = msgspec.structs.replace(order(tmp_path, "here/1"), attempt=2, term=first_term(3))
    asyncio.run(LocalDrivers(tmp_path, node="here", devices=DEVICES).start(again))
    job = JobDirectory(tmp_path / JOB)
    term = first_term(4 if is_late else 3) + 6
    stopped = Outcome("stopped", 0, "it was paused")
    job.write_journal(JobJournal(spec=again.spec, token="t", outcome=stopped, term=term))
    assert process.main(job.path, "here") == 2
    journal = job.read_journal()
    assert journal is not None and journal.outcome is not None
    assert (journal.outcome.outcome, journal.term) == ("stopped" if is_late else "failed", term)


def test_a_slot_that_has_no_device_is_refused(tmp_path: Path, made: dict[str, Any]) -> None:
    drivers = LocalDrivers(tmp_path, node="here", devices=DEVICES)
    for slot in ("here/3", "there/0", "here/-1", "here/x"):
        with pytest.raises(LegatoError, match=f"Slot {slot} is not one of this machine's: here/0 to here/2"):
            asyncio.run(drivers.start(order(tmp_path, slot)))
    assert made == {}
