"""Orders, journals and requests of the release that knew slots as numbers, while Legato is upgraded under a job.

The folder ``earlier_release`` has the order and the journal of a job with four workers, as that release wrote them. It
ran with a server, and the number of its workers was changed from two to four.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from legato.control.drivers import process
from legato.control.drivers.drivers import Assignment, DriverReport, DriverState
from legato.control.drivers.local import LocalDrivers
from legato.control.drivers.process import read_order
from legato.core import wire
from legato.core.spec import JobSpec
from legato.driver.events import MembershipSnapshot
from legato.driver.journal import DriverFile, JobDirectory, JobJournal, Outcome
from legato.driver.numbered_slots import number_journal, number_status

JOB: Final = "j-0000000001"
WRITTEN: Final = Path(__file__).with_name("earlier_release")
FOUR: Final = ("vm/0", "vm/1", "vm/2", "vm/3")
REQUEST: Final = (
    b"\x85\xa4type\xadAssignRequest\xa5slots\x92\x00\x03\xa6reason\xadthe pool grew"
    b"\xabmin_workers\x01\xabmax_workers\x04"
)


class AssignRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """As that release decodes it."""

    slots: tuple[int, ...]
    reason: str
    min_workers: int | None = None
    max_workers: int | None = None


class StatusRequest(msgspec.Struct, frozen=True, tag=True):
    """As that release decodes it."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a snapshot with slots, as that release decodes them."""

    slots: dict[int, int]
    wanted: tuple[int, ...]
    given_up: tuple[int, ...] = ()
    surplus: tuple[int, ...] = ()


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """As that release decodes it."""

    spec: JobSpec
    token: str
    snapshot: Snapshot | None = msgspec.field(default=None, name="book")


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    """The directory of the job."""
    found = JobDirectory(tmp_path / "legato" / "jobs" / JOB)
    shutil.copytree(WRITTEN, found.path)
    return found


def test_its_order_is_read_and_the_new_driver_has_names(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}

    class Driver:
        def __init__(self, *_: Any, **options: Any) -> None:
            made.update(options)

        async def run(self) -> Outcome:
            return Outcome("succeeded", 0, "test")

    monkeypatch.setattr(process, "Driver", Driver)
    monkeypatch.setattr(process, "LocalEngine", lambda *_, **options: made.update(engine_of=options["node"]))
    found = read_order(directory.path)
    assert found is not None and found.is_numbered
    asyncio.run(process._drive(found, directory))
    assert (made["slots"], made["node"], made["engine_of"]) == (("vm/0", "vm/1"), "vm", "vm")
    assert made["numbers_slots"], "a server of that release may still read its status and journal"


def test_its_journal_is_read_and_a_server_of_that_release_can_read_the_next_one(directory: JobDirectory) -> None:
    journal = directory.read_journal("vm")
    assert journal is not None and journal.snapshot is not None
    assert journal.snapshot.slots == dict(enumerate(FOUR))
    assert journal.snapshot.wanted == FOUR
    assert journal.snapshot.available == (), "the platform assigned its slots"
    directory.write_journal(journal, numbers_slots=True)
    written = msgspec.json.decode(directory.journal_file.read_bytes(), type=Journal)
    assert written.snapshot == Snapshot(slots={0: 0, 1: 1, 2: 2, 3: 3}, wanted=(0, 1, 2, 3))
    again = directory.read_journal("vm")
    assert again is not None and again.snapshot == journal.snapshot
    assert number_journal(JobJournal(spec=journal.spec, token=""))["book"] is None


def test_its_request_becomes_one_with_names(directory: JobDirectory) -> None:
    request = wire.decode_request(REQUEST)
    assert request == wire.AssignRequest(slots=(0, 3), reason="the pool grew", min_workers=1, max_workers=4)
    named = wire.AssignRequest(slots=("vm/0",), reason="", min_workers=None)
    assert wire.decode_request(wire.encode(named)) == named


def test_a_status_for_a_server_of_that_release_has_numbers() -> None:
    slots = {"wanted": ["vm/0", "vm/10"], "in_use": ["vm/0"], "given_up": [], "surplus": ["vm/2"], "available": []}
    status = {"slots": slots, "workers": [{"worker": 3, "slot": "vm/10"}], "step": 7}
    assert number_status(status) == {
        "slots": {"wanted": [0, 10], "in_use": [0], "given_up": [], "surplus": [2], "available": []},
        "workers": [{"worker": 3, "slot": 10}],
        "step": 7,
    }


def test_a_driver_of_that_release_gets_numbers_and_its_report_gets_names(directory: JobDirectory) -> None:
    heard: list[AssignRequest] = []
    status = {"num_workers": 2, "step": 1, "epoch": 0, "loss": 0.5, "samples_per_s": 1.0}
    status |= {"min_workers": 1, "max_workers": 4}
    slots = {"wanted": [0, 10], "in_use": [0, 2, 10], "given_up": [3], "surplus": [1]}

    async def answer(connection: ServerConnection) -> None:
        decoder = msgspec.msgpack.Decoder(AssignRequest | StatusRequest)
        async for frame in connection:
            assert isinstance(frame, bytes)
            request = decoder.decode(frame)
            if isinstance(request, AssignRequest):
                heard.append(request)
            await connection.send(wire.encode(wire.Reply(status={**status, "slots": slots})))

    async def upgrade() -> DriverReport:
        async with serve(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            directory.write_driver_file(DriverFile(f"ws://127.0.0.1:{port}/worker", "a token", 1))
            drivers = LocalDrivers(directory.path.parent, node="vm", devices=("cpu",) * 11)
            said = Assignment(slots=frozenset({"vm/10", "vm/0", "vm/2"}), min_workers=1, max_workers=4, reason="grow")
            assert await drivers.assign(JOB, 1, said)
            report = (await drivers.reports({JOB: 1}))[JOB]
            await drivers.close()
            return report

    report = asyncio.run(upgrade())
    assert heard == [AssignRequest(slots=(0, 2, 10), reason="grow", min_workers=1, max_workers=4)]
    assert report.state is DriverState.RUNNING
    assert report.assigned == {"vm/0", "vm/1", "vm/3", "vm/10"}
    assert report.in_use == {"vm/0", "vm/2", "vm/10"}
    assert (report.given_up, report.surplus) == ({"vm/3"}, {"vm/1"})


def test_a_snapshot_of_this_release_has_names_only() -> None:
    snapshot = MembershipSnapshot(last_view=1, next_worker=1, slots={0: "vm/0"}, wanted=("vm/0",), is_assigned=True)
    with pytest.raises(msgspec.ValidationError, match="Expected `str`, got `int`"):
        msgspec.convert({**msgspec.to_builtins(snapshot), "wanted": [0]}, MembershipSnapshot)
