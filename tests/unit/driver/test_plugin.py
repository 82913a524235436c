"""A guest of the driver: hears who is there, tells workers where it is, outlasts a driver. Knows no real one."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from tests.unit.driver.players import make_spec
from tests.unit.driver.test_driver import raise_stage

from legato.core import wire
from legato.core.errors import UsageError
from legato.core.lifecycle import JobState
from legato.core.slots import list_slots
from legato.core.spec import GuestSpec
from legato.driver import events
from legato.driver.membership import Membership
from legato.driver.plugin import Host, PluginHost
from legato.driver.status import Meter, build_status
from legato.engines.base import Exited, Started

_ENTRY = f"{__name__}:make_guest"

guests: list[Notebook] = []


class Notebook:
    """Notes down all that it hears."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.heard: list[Any] = []
        self.left: str | None = "one page is empty"

    async def open(self) -> None:
        if "refuses" in self.host.spec.guest.options:
            raise UsageError("The guest has no room.")
        page = self.host.directory / "page"
        page.write_text((page.read_text() if page.exists() else "") + "opened ")
        self.heard.append("opened")
        self.host.note_work(is_left=True)

    def variables_of(self, worker: int) -> dict[str, str]:
        return {"GUEST": f"here for {worker}", "LEGATO_WORKER": "not the guest's to say"}

    def note_workers(self, workers: frozenset[int]) -> None:
        self.heard.append(set(workers))

    def describe_left(self) -> str | None:
        return self.left

    async def close(self) -> None:
        self.heard.append("closed")


def make_guest(host: Host) -> Notebook:
    guests.append(Notebook(host))
    return guests[-1]


@pytest.fixture(autouse=True)
def no_guests() -> None:
    guests.clear()


def test_a_guest_hears_who_is_there_and_workers_hear_of_it(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, guest=GuestSpec(entry=_ENTRY), environment={"GUEST": "the job's"}) as stage:
            await stage.until_training(2)
            assert guests[0].heard == ["opened", {0, 1}]
            assert stage.machine.launches[1].environment["GUEST"] == "here for 1"
            assert stage.machine.launches[1].environment["LEGATO_WORKER"] == "1"
            stage.machine.end(0, -9)
            await stage.orchestra.until(lambda: 2 in stage.machine.running)
            await stage.until_training(2)
            # The place of the dead is filled at the moment in which it is known to be free.
            assert guests[0].heard == ["opened", {0, 1}, {1, 2}]
            guests[0].host.tell("said by the guest", "warning")
            guests[0].host.give_up(1, "keeps others waiting")
            assert guests[0].heard[-1] == {2}, "at once"
            guests[0].host.give_up(1, "keeps others waiting")
            guests[0].host.give_up(77, "was never there")
            await stage.orchestra.until(lambda: 3 in stage.machine.running)
            await stage.until_training(2)
            outcome = await stage.finish()
            assert outcome.outcome == "succeeded"
            assert guests[0].heard[-1] == "closed"
            assert guests[0].heard[-2] == set()
            told = [(event.reason, event.level) for event in stage.events if event.kind == "note"]
            assert ("said by the guest", "warning") in told
            assert ("one page is empty", "warning") in told
            fenced = [event.reason for event in stage.events if event.kind == "fenced"]
            assert fenced == ["worker 1 keeps others waiting; it is killed"]

    asyncio.run(play())


def test_a_new_driver_opens_the_guest_again_with_what_it_kept(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, guest=GuestSpec(entry=_ENTRY)) as stage:
            await stage.until_training(2)
            await stage.drop_driver()
            assert guests[0].heard[-1] == "closed"
            stage.machine.end(1, -9)
            stage.raise_curtain(adopting=True)
            await stage.orchestra.until(lambda: 2 in stage.machine.running)
            await stage.until_training(2)
            assert guests[1].heard == ["opened", {0}, {0, 2}]
            assert (stage.directory.guest / "page").read_text() == "opened opened "
            await stage.finish()
        # A job that starts from scratch under this name has another plugin, with nothing kept.
        async with raise_stage(tmp_path, guest=GuestSpec(entry=_ENTRY)) as stage:
            await stage.until_training(2)
            assert (stage.directory.guest / "page").read_text() == "opened "
            await stage.finish()

    asyncio.run(play())


def test_that_something_is_left_is_no_error_of_a_job_that_is_stopped(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, guest=GuestSpec(entry=_ENTRY)) as stage:
            await stage.until_training(2)
            stage.driver.stop("enough", now=True)
            assert (await stage.running).outcome == "stopped"
            assert ("one page is empty", "info") in [(event.reason, event.level) for event in stage.events]

    asyncio.run(play())


def test_a_job_without_a_guest_has_none_of_it(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            await stage.finish()
            assert not stage.directory.guest.exists()
            assert "GUEST" not in stage.machine.launches[0].environment

    asyncio.run(play())


@pytest.mark.parametrize(
    ("guest", "told"),
    [
        (GuestSpec(entry="legato.nowhere:make"), "its plugin legato.nowhere:make cannot be loaded"),
        (GuestSpec(entry="legato.driver.plugin:nothing"), "its plugin legato.driver.plugin:nothing cannot be loaded"),
        (GuestSpec(entry=_ENTRY, options={"refuses": "yes"}), "The guest has no room"),
    ],
    ids=["module", "function", "refusal"],
)
def test_a_job_whose_guest_cannot_come_does_not_start(tmp_path: Path, guest: GuestSpec, told: str) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, guest=guest) as stage:
            with pytest.raises(UsageError, match=told):
                await stage.running
            assert stage.machine.launches == {}

    asyncio.run(play())


# ---------------------------------------------------------------- work that is left


def make_membership(**changes: Any) -> Membership:
    spec = make_spec(**changes)
    available = list_slots("n", spec.max_workers)
    membership = Membership(spec, "h:1", checkpoint_dir="/c", now=0.0, available=available)
    membership.begin(0.0)
    for number in (0, 1):
        membership.handle(Started(worker=number, pid=number + 10), 0.0)
        membership.handle(events.Heard(number, make_hello(number)), 0.0)
    return membership


def make_hello(number: int) -> wire.Hello:
    return wire.Hello(view=0, worker=number, pid=number + 10, host="h", current=None, phase="joining", num_rounds=0)


def finish(membership: Membership, number: int, now: float) -> None:
    membership.handle(events.Heard(number, wire.Finished(view=0, num_rounds=0, trained=False)), now)
    membership.handle(Exited(worker=number, exit_code=0), now)


@pytest.mark.parametrize("is_left", [True, False])
def test_who_dies_when_others_have_finished_is_replaced_if_work_is_left(is_left: bool) -> None:
    membership = make_membership()
    membership.handle(events.Worked(is_left), 1.0)
    finish(membership, 0, 1.0)
    instructions = membership.handle(Exited(worker=1, exit_code=-9), 2.0)
    started = [instruction for instruction in instructions if isinstance(instruction, events.StartWorker)]
    assert started == ([events.StartWorker(2, "n/1")] if is_left else [])
    if is_left:
        # It may come and end as any other; no worker replaces one that has finished.
        membership.handle(events.Heard(2, make_hello(2)), 3.0)
        finish(membership, 2, 3.0)
    assert membership.job.state is JobState.SUCCEEDED


def test_what_shares_work_by_a_guest_did_not_all_run_by_itself() -> None:
    for guest, told in ((None, "never called legato.elastic"), (GuestSpec(entry=_ENTRY), "the program ran to its end")):
        membership = make_membership(guest=guest)
        finish(membership, 0, 1.0)
        membership.handle(events.Heard(1, wire.Finished(view=0, num_rounds=0, trained=False)), 2.0)
        *_, end = membership.handle(Exited(worker=1, exit_code=0), 2.0)
        assert isinstance(end, events.End)
        assert told in end.reason
        assert (guest is None) == ("legato.elastic" in end.reason)


def test_who_does_work_is_forgiven_the_deaths_in_its_slot() -> None:
    membership = make_membership(max_deaths=2)
    number = 1
    for now in range(1, 10):
        membership.handle(Exited(worker=number, exit_code=-9), float(now))
        number = max(membership.job.workers)
        membership.handle(events.Heard(number, make_hello(number)), float(now))
        membership.handle(events.Worked(True, by=number), float(now))
    assert membership.job.state is JobState.FORMING
    for now in range(10, 13):
        membership.handle(Exited(worker=number, exit_code=-9), float(now))
        number = max(membership.job.workers)
        membership.handle(events.Worked(True), float(now))
    assert membership.job.state is JobState.FAILING


def tell(membership: Membership) -> tuple[int, str, list[str]]:
    """Return what a status says: how many workers, the job's state, and their phases."""
    told = build_status(membership.job, Meter(), deque(), None, 1.0)
    return told["num_workers"], told["state"], [worker["phase"] for worker in told["workers"]]


def test_who_has_work_of_a_guest_counts_as_a_worker_though_it_never_trains() -> None:
    membership = make_membership()
    on_their_way = (0, "forming", ["joining", "joining"])
    assert tell(membership) == on_their_way, "their programs may be on their way to a join point"
    for by in (1, 1, 9):  # who is not there counts for nothing
        membership.handle(events.TakenUp(by), 1.0)
    assert tell(membership) == (1, "working", ["joining", "working"])
    membership.handle(events.TakenUp(0), 1.0)
    assert tell(membership) == (2, "working", ["working", "working"])
    finish(membership, 0, 2.0)
    assert tell(membership) == (1, "finishing", ["working"])


def test_a_worker_that_runs_a_plain_command_counts_as_one_that_works() -> None:
    membership = make_membership()
    for number in range(2):
        membership.handle(events.Heard(number, wire.Heartbeat(is_waiting=False)), 1.0)
    assert tell(membership) == (0, "forming", ["joining", "joining"])
    for number in range(2):
        membership.handle(events.Heard(number, wire.Heartbeat(is_waiting=False, is_independent=True)), 2.0)
    assert tell(membership) == (2, "working", ["working", "working"])


def test_taking_work_up_forgives_no_death() -> None:
    membership = make_membership(max_deaths=2)
    for now in range(1, 4):
        number = max(membership.job.workers)
        membership.handle(events.Heard(number, make_hello(number)), float(now))
        membership.handle(events.TakenUp(number), float(now))
        membership.handle(Exited(worker=number, exit_code=-9), float(now))
    assert membership.job.state is JobState.FAILING


@pytest.mark.parametrize(("by", "num_fed"), [(0, 1), (5, 0)])
def test_a_guest_tells_once_who_has_work(tmp_path: Path, by: int, num_fed: int) -> None:
    membership = make_membership()
    fed: list[events.Event] = []

    def feed(event: events.Event) -> None:
        fed.append(event)
        membership.handle(event, 1.0)

    plugin_host = PluginHost(make_spec(), tmp_path, feed, lambda _: None)
    asyncio.run(plugin_host.open(membership.job))
    for _ in range(3):
        plugin_host.note_taken_up(by)
    assert fed == [events.TakenUp(by)] * num_fed
