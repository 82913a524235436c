"""Attempts whose driver a server of another machine has started: who may take them over, and how."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.agent.orders import AgentOrder, read_agent_order, write_agent_order
from legato.control.drivers import local, own_agent, process
from legato.control.drivers.drivers import DriverOrder, DriverReport, DriverState
from legato.control.drivers.local import LocalDrivers
from legato.control.drivers.own_agent import OwnAgent
from legato.control.drivers.process import DoorOrder, LocalOrder, find_lease_s, read_order, write_order
from legato.core.errors import LegatoError
from legato.core.spec import JobSpec
from legato.core.terms import first_term
from legato.driver.journal import JobDirectory, JobJournal, Outcome
from legato.engines.agents import PATH, RECORD
from legato.engines.agents_record import AgentsRecord, NodeRecord, write_record
from legato.engines.term_watch import TERM_LIMIT_S
from legato.system.door import Door
from legato.system.processes import start_time_of

JOB = "j-0000000001"
SHARED = DoorOrder(host="0.0.0.0", address="10.0.0.1", is_shared=True)
OWN = DoorOrder(host="0.0.0.0", address="10.0.0.2", is_shared=True)


def make_order(fence: int = 1, attempt: int = 1) -> DriverOrder:
    spec = JobSpec(name=JOB, program=("train.py",), directory="/", min_workers=1, max_workers=2, num_workers=2)
    return DriverOrder(job=JOB, attempt=attempt, spec=spec, slots=("a/0", "b/0"), term=first_term(fence))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a job whose driver a server on the machine a has started."""
    directory = tmp_path / JOB
    directory.mkdir()
    put_order(directory, SHARED)
    return directory


def put_order(directory: Path, door: DoorOrder | None) -> None:
    order = make_order()
    write_order(directory, LocalOrder(order=order, slots=order.slots, devices=("cpu",) * 4, own_node="a", door=door))


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    caught: list[str] = []
    monkeypatch.setattr(LocalDrivers, "_spawn", lambda _self, job, _directory: caught.append(job))
    return caught


def make_drivers(directory: Path, node: str = "b") -> LocalDrivers:
    return LocalDrivers(directory.parent, node=node, devices=("cpu",), find_door=lambda: OWN)


def report(drivers: LocalDrivers) -> DriverReport:
    return asyncio.run(drivers.reports({JOB: 1}))[JOB]


def test_a_server_of_another_machine_starts_a_driver_of_its_own_with_a_higher_term(
    directory: Path, spawned: list[str]
) -> None:
    job = JobDirectory(directory)
    job.write_journal(JobJournal(spec=make_order().spec, token="t", term=first_term(1) + 5))
    before = job.journal_file.read_bytes()
    drivers = make_drivers(directory)
    found = report(drivers)
    assert (found.state, found.trouble) == (
        DriverState.GONE,
        "it was on the machine a, whose server does not lead any more",
    )
    asyncio.run(drivers.start(make_order(fence=2)))
    assert spawned == [JOB]
    order = read_order(directory)
    assert order is not None
    assert (order.node, order.devices, order.door) == ("b", ("cpu",), OWN)
    assert (order.order.term, order.slots) == (first_term(2), ("a/0", "b/0"))
    # The driver on the machine a, if it lives, reads this before it writes its journal, which stays as it was.
    assert job.read_term() == first_term(2)
    assert job.journal_file.read_bytes() == before
    assert report(drivers).state is DriverState.GONE, "its process has not been seen yet"
    # The server on the machine a sees the same from its side.
    assert report(make_drivers(directory, "a")).trouble.startswith("it was on the machine b")


def test_the_end_of_a_job_counts_wherever_its_driver_was(directory: Path) -> None:
    outcome = Outcome("succeeded", 0, "the program ran to its end")
    JobDirectory(directory).write_journal(JobJournal(spec=make_order().spec, token="t", outcome=outcome))
    assert report(make_drivers(directory)).outcome == outcome


@pytest.mark.parametrize("door", [None, DoorOrder(host="0.0.0.0", address="10.0.0.1")])
def test_an_attempt_that_cannot_move_stays_where_it_is_and_the_reason_names_the_machine(
    directory: Path, spawned: list[str], door: DoorOrder | None
) -> None:
    put_order(directory, door)
    drivers = make_drivers(directory)
    found = report(drivers)
    assert found.state is DriverState.UNKNOWN
    assert found.trouble.startswith("runs on the machine a, and no other machine can take it over")
    for call in (drivers.start(make_order(fence=2)), drivers.give_up(JOB, 1, "it is given up")):
        with pytest.raises(LegatoError, match="runs on the machine a"):
            asyncio.run(call)
    assert spawned == []
    assert JobDirectory(directory).read_term() == 0


def test_a_process_of_another_machine_is_neither_taken_for_a_driver_nor_killed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "send_signal", lambda *_: pytest.fail("a process of this machine gets a signal"))
    started = start_time_of(os.getpid())
    assert started is not None
    identity = {"pid": os.getpid(), "start_time": started, "node": "a"}
    (directory / "driver-process.json").write_bytes(msgspec.json.encode(identity))
    other = JobDirectory(directory, lock_name="lock-a")
    other.lock()
    drivers = make_drivers(directory)
    assert report(drivers).state is DriverState.GONE
    asyncio.run(drivers.kill(JOB, 1))
    assert JobDirectory(directory).is_locked(), "a user sees that a driver runs"
    assert not drivers._is_driven(directory)
    assert make_drivers(directory, "a")._is_driven(directory)
    other.unlock()


def test_an_attempt_is_given_up_only_when_no_earlier_driver_can_renew_a_lease(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(local.time, "monotonic", lambda: now)
    write_record(directory / RECORD, AgentsRecord("secret", {"a": NodeRecord(("cpu",), {1: 4711})}, port=1))
    drivers = make_drivers(directory)
    order = read_order(directory)
    assert order is not None
    write_order(directory, msgspec.structs.replace(order, own_node="b", order=make_order(fence=2)))
    lease_s = find_lease_s(order.order.spec) * 1.1
    for passed_s in (0.0, lease_s + TERM_LIMIT_S - 1.0):
        now += passed_s
        with pytest.raises(LegatoError, match="Its workers on a may still run"):
            asyncio.run(drivers.give_up(JOB, 1, "it is given up"))
        assert JobDirectory(directory).read_term() == first_term(2), "a driver on the machine a stops leading"
    now += 1.1
    asyncio.run(drivers.give_up(JOB, 1, "it is given up"))
    assert report(drivers).outcome == Outcome("failed", 1, "it is given up")


def test_an_attempt_that_a_new_server_gives_up_first_is_led_by_no_driver_of_the_earlier_one(directory: Path) -> None:
    job = JobDirectory(directory)
    job.write_journal(JobJournal(spec=make_order().spec, token="t", term=first_term(1) + 5))
    record = AgentsRecord("secret", {"a": NodeRecord(("cpu",), {1: 4711})}, port=1)
    write_record(directory / RECORD, record)
    drivers = make_drivers(directory)
    with pytest.raises(LegatoError, match="Its workers on a may still run"):
        asyncio.run(drivers.give_up(JOB, 1, "it is given up", first_term(2)))
    assert job.read_term() == first_term(2), "the driver on the machine a reads that, and ends"
    # Also if no worker is left on other machines: that driver would start some.
    put_order(directory, SHARED)
    job.term_file.unlink()
    write_record(directory / RECORD, AgentsRecord("secret", {"a": NodeRecord(("cpu",), {})}, port=1))
    asyncio.run(drivers.give_up(JOB, 1, "it is given up", first_term(2)))
    assert job.read_term() == first_term(2)


def test_a_driver_that_starts_late_on_a_machine_that_lost_the_job_ends(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_drive", lambda *_: pytest.fail("it leads"))
    assert process.main(directory, "b") == 1
    assert not (directory / "journal.json").exists()


def test_a_driver_shows_itself_to_the_agents_of_other_servers_machines(tmp_path: Path) -> None:
    folders = {node: tmp_path / f"agent-{node}" for node in ("a", "b", "c")}
    old = AgentOrder(job=JOB, node="a", urls=("ws://10.0.0.1:1/agent",), token="t", address="10.0.0.1", num_slots=3)
    write_agent_order(folders["a"], old)

    async def play(is_shared: bool, node: str) -> None:
        door = Door(host="127.0.0.1")
        await door.open()
        agent = OwnAgent(JOB, "b", door, "10.0.0.2", ("cpu",), find_folder=folders.__getitem__, is_shared=is_shared)
        keeping = asyncio.create_task(agent.keep(node, "t", lambda _reason: None))
        try:
            if not is_shared:
                await asyncio.wait_for(keeping, 30)
                return
            url = f"wss://10.0.0.2:{door.port}/agent"
            deadline = time.monotonic() + 30
            while node == "a" and read_agent_order(folders[node]).urls != (url,):
                assert time.monotonic() < deadline
                await asyncio.sleep(0)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await door.close()

    asyncio.run(play(is_shared=False, node="a"))
    assert read_agent_order(folders["a"]) == old, "the home is not shared"
    asyncio.run(play(is_shared=True, node="a"))
    new: Any = msgspec.structs.replace(read_agent_order(folders["a"]), urls=old.urls)
    assert new == old, "only where the driver is has changed"
    asyncio.run(play(is_shared=True, node="c"))
    assert not folders["c"].exists(), "an agent that does not exist is started by its own machine"


def test_an_error_of_the_disk_ends_neither_the_agent_of_this_machine_nor_the_care_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_agent, "_LOOK_EVERY_S", 0.01)
    tries: list[str] = []

    def fail_once(what: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            tries.append(what)
            if tries.count(what) == 1:
                raise OSError(errno.EIO, "the disk does not answer")
            return do(*args)

        return call

    monkeypatch.setattr(own_agent, "is_running", fail_once("look", lambda _folder: True))
    monkeypatch.setattr(own_agent, "write_agent_order", fail_once("write", write_agent_order))
    (tmp_path / "agent.json").write_bytes(b"{")  # half of an order

    async def run() -> None:
        door = Door(host="127.0.0.1")
        await door.open()
        agent = OwnAgent(JOB, "b", door, "10.0.0.2", ("cpu",), find_folder=lambda _node: tmp_path)
        keeping = asyncio.create_task(agent.keep("b", "t", pytest.fail))
        deadline = time.monotonic() + 30
        while tries.count("write") < 2 or (tmp_path / "agent.json").read_bytes() == b"{":
            assert time.monotonic() < deadline and not keeping.done()
            await asyncio.sleep(0.01)
        assert read_agent_order(tmp_path).urls == (door.url(PATH),)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await door.close()

    asyncio.run(run())
    assert tries[:2] == ["look", "look"]
