"""Jobs whose workers are started by agents: the same result, whatever becomes of agents, drivers and machines.

Two agents of this machine stand for two machines: each has its own directory and its own loopback address, so their
workers are on different nodes and meet by the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tests import fork_server
from tests.integration.harness import (
    NAME,
    PROGRAMS,
    Act,
    Do,
    Reference,
    Stage,
    World,
    abandon,
    after_event,
    at_step,
    both,
    do_all,
    kill,
    kill_all,
    nothing,
    scale,
    settled,
    steps_later,
    stop,
    with_members,
)
from tests.integration.test_driver import hold_back, num_lines, wait_for

from legato.agent import process
from legato.agent.orders import AgentOrder, read_agent_order
from legato.agent.process import start_agent
from legato.core.agent_messages import OpenJob
from legato.core.slots import node_of
from legato.core.spec import JobSpec
from legato.driver.driver import Driver, Observer
from legato.driver.journal import Outcome
from legato.driver.record import Event
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, AgentsEngine
from legato.system.door import Door

NODES = {"a": "127.0.0.1", "b": "127.0.0.2"}
SLOTS_OF_NODE = 2


class PrivateDisks(AgentsEngine):
    """Machines that do not see the driver's directory of checkpoints."""

    def _mark_checkpoints(self) -> None:
        super()._mark_checkpoints()
        self._job = msgspec.structs.replace(self._job, mark="not-there")


class Machines(Stage):
    """A job on two machines, each with an agent.

    Args:
        path: of the test.
        monkeypatch: of the test.
        options: of the engine.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        super().__init__(path, monkeypatch)
        self.options = options
        self.has_private_disks = False

    def disk(self, node: str) -> Path:
        return self.home / "machines" / node

    def make_driver(
        self, spec: JobSpec | None, asked: JobSpec, start: Literal["fork", "fresh"], observer: Observer
    ) -> tuple[AgentsEngine, Driver]:
        door = Door(paths=("/worker", "/client", PATH))
        engine = (PrivateDisks if self.has_private_disks else AgentsEngine)(
            self.directory.path,
            door,
            [NodeSpec(node, SLOTS_OF_NODE) for node in NODES],
            OpenJob(environment=asked.variables, directory=asked.directory, start=start),
            log_path=self.directory.log_path,
            checkpoints=self.directory.checkpoints,
            keep=asked.keep,
            starter=_Starter(self, door),
            **self.options,
        )
        driver = Driver(spec, engine, self.directory, observer=observer, available=lambda: engine.slots, door=door)
        return engine, driver

    def pid_of_agent(self, node: str) -> int:
        """Return the process of an agent: the one that holds the lock of its directory."""
        lock = (self.disk(node) / "agent.lock").stat()
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and int(words[5].split(":")[2]) == lock.st_ino:
                return int(words[4])
        raise AssertionError(f"no agent of {node} runs")


class _Look(Observer):
    """Notes which checkpoints the driver has when a worker has started."""

    def __init__(self, checkpoints: Path) -> None:
        self._checkpoints = checkpoints
        self.seen: list[list[str]] = []

    def on_event(self, event: Event) -> None:
        if event.kind == "joining":
            self.seen.append([path.name for path in self._checkpoints.glob("step-*.legato")])


class _Starter:
    def __init__(self, stage: Machines, door: Door) -> None:
        self._stage = stage
        self._door = door

    async def keep(self, node: str, secret: str, _refuse: Callable[[str], None]) -> None:
        order = AgentOrder(job="job", node=node, urls=(self._door.url(PATH),), token=secret, address=NODES[node])
        start_agent(self._stage.disk(node), msgspec.structs.replace(order, num_slots=SLOTS_OF_NODE))


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Stage) -> Iterator[Machines]:
    (tmp_path / "machines").mkdir()
    monkeypatch.setattr(process, "subprocess", fork_server.ForkingAgents())
    made = Machines(tmp_path / "machines", monkeypatch)
    made.directory = stage.directory
    yield made
    made.clear()


def test_a_job_on_two_machines_has_the_result_of_one(machines: Machines, reference: Reference) -> None:
    want = reference.of("vision.py")
    plan = [
        Act(at_step(3), scale(4), "use both machines"),
        Act(with_members(4), scale(2), "back to one"),
        Act(with_members(2), scale(3), "and both again"),
        Act(lambda world: set(world.status.get("sent_bytes") or ()) == {"a", "b"}, nothing, "both send gradients"),
    ]
    result = machines.run("vision.py", plan=plan)
    result.check(want, finishers=3)
    assert {event["worker"] for event in result.of_kind("joining")} == set(result.logs), "each log has come"


def test_killed_workers_and_a_new_driver(machines: Machines, reference: Reference) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(settled, at_step(2)), kill(3), "kill a worker of the second machine"),
        Act(both(settled, steps_later(2)), abandon, "another driver takes over"),
        Act(both(settled, steps_later(2)), kill(0), "kill rank 0"),
        Act(settled, nothing, "all train"),
    ]
    machines.run("text.py", workers=(1, 4, 4), plan=plan).check(want)


def kill_agent(machines: Machines, node: str) -> Do:
    def do(_world: World) -> None:
        os.kill(machines.pid_of_agent(node), signal.SIGKILL)

    return do


def restart_agent(machines: Machines, node: str) -> Do:
    def do(_world: World) -> None:
        start_agent(machines.disk(node), read_agent_order(machines.disk(node)))

    return do


def test_an_agent_that_is_killed_and_started_again_keeps_its_workers(machines: Machines, reference: Reference) -> None:
    want = reference.of("vision.py")
    plan = [
        Act(both(settled, at_step(2)), do_all(kill_agent(machines, "b"), restart_agent(machines, "b")), "kill it"),
        Act(both(settled, steps_later(3)), scale(3), "it ends a worker"),
        Act(with_members(3), scale(4), "and starts one"),
        Act(with_members(4), nothing, "four train"),
    ]
    result = machines.run("vision.py", workers=(1, 4, 4), plan=plan)
    result.check(want, finishers=4)
    assert [event for event in result.of_kind("joining") if event["worker"] > 4] == [], "no worker was replaced"


def crash(machines: Machines, node: str) -> Do:
    """Kill all processes of a machine: its agent first, so that it reports nothing."""

    def do(world: World) -> None:
        kill_agent(machines, node)(world)
        os.kill(json.loads((machines.disk(node) / "engine.json").read_text())["pid"], signal.SIGKILL)
        for worker in world.workers:
            if node_of(worker["slot"]) == node:
                world.signal(worker["worker"], signal.SIGKILL)

    return do


def test_the_others_train_on_without_a_machine_that_crashes_and_use_it_again(
    machines: Machines, reference: Reference
) -> None:
    want = reference.of("vision.py")
    machines.options["silence_limit_s"] = 1.0
    plan = [
        Act(both(settled, at_step(2)), crash(machines, "b"), "a machine crashes"),
        Act(both(after_event("recovered"), steps_later(3)), restart_agent(machines, "b"), "it is back"),
        Act(both(after_event("returned"), with_members(4)), nothing, "four train"),
    ]
    result = machines.run("vision.py", workers=(1, 4, 4), plan=plan)
    result.check(want, finishers=4)
    (lost,), (back,) = result.of_kind("lost"), result.of_kind("returned")
    assert lost["reason"].startswith("node b is lost: its agent is silent for 1 s. Workers 2, 3 may still run there")
    assert back["reason"].startswith("node b is back after")
    assert [event["worker"] for event in result.of_kind("fenced")] == [2, 3]
    assert result.of_kind("died") == [], "the loss is no death in a slot"
    started = [event for event in result.of_kind("started") if "slot b/" in event["reason"]]
    assert all(not lost["seq"] < event["seq"] < back["seq"] for event in started), "none starts there meanwhile"


@pytest.mark.soak
def test_a_driver_and_a_machine_are_lost_together(machines: Machines, reference: Reference) -> None:
    want = reference.of("vision.py")
    machines.options |= {"silence_limit_s": 1.0, "gather_limit_s": 1.0}
    plan = [
        Act(both(settled, at_step(2)), do_all(crash(machines, "b"), abandon), "a machine crashes, and the driver too"),
        Act(both(after_event("recovered"), steps_later(3)), restart_agent(machines, "b"), "the machine is back"),
        Act(both(after_event("returned"), with_members(4)), nothing, "four train"),
    ]
    result = machines.run("vision.py", workers=(1, 4, 4), plan=plan)
    result.check(want, finishers=4)
    assert result.of_kind("died") == [], "the loss is no death in a slot"
    assert result.of_kind("resumed") == [], "no committed step is lost"


@contextlib.contextmanager
def small_disk(path: Path, num_bytes: int) -> Iterator[None]:
    """Put a disk of its own at a path."""
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("a small disk needs root")
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "none", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Do:
    def do(_world: World) -> None:
        with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    return do


def test_a_full_disk_of_a_machine_stops_no_training(
    machines: Machines, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_MIN_FREE_BYTES", 0)  # an agent does not start on such a small disk
    want = reference.of("vision.py")
    (machines.reins / "print").touch()
    disk = machines.disk("b")

    def free(_world: World) -> None:
        (disk / "filler").unlink()

    plan = [
        Act(both(settled, at_step(2)), fill(disk), "the disk of a machine is full"),
        Act(both(after_event("note", "its log cannot be written"), steps_later(3)), abandon, "another driver comes"),
        Act(both(settled, steps_later(2)), kill(3), "it ends a worker"),
        Act(both(after_event("died"), steps_later(2)), free, "there is room again"),
        Act(with_members(4), nothing, "all train"),
    ]
    with small_disk(disk, 2 * 2**20):
        result = machines.run("vision.py", workers=(1, 4, 4), plan=plan)
    result.check(want, errors=["could not"])
    told = [event["reason"] for event in result.of_kind("note") if "bytes of output were lost" in event["reason"]]
    assert told, result.story()
    assert any("bytes of output are missing here: No space left on device" in log for log in result.logs.values())


def test_checkpoints_of_private_disks_come_to_the_driver_and_go_back(machines: Machines, reference: Reference) -> None:
    want = reference.of("vision.py")
    machines.has_private_disks = True
    plan = [
        Act(both(settled, after_event("saved")), kill_all, "all are killed after a checkpoint"),
        Act(both(settled, after_event("note", "Resumed from")), nothing, "new workers resume from it"),
    ]
    result = machines.run("vision.py", workers=(1, 3, 3), plan=plan, checkpoint_every="3steps", keep=2)
    result.check(want, finishers=3)
    kept = sorted(path.name for path in machines.directory.checkpoints.iterdir())
    assert len(kept) == 2 and all(name.startswith("step-") for name in kept), "the newest are kept, and no part of one"
    saved = {event["reason"].rpartition(" at ")[2] for event in result.of_kind("saved")}
    assert all(path.startswith(str(machines.directory.checkpoints)) for path in saved), saved


@pytest.mark.soak
def test_a_driver_goes_on_from_what_workers_saved_on_their_disks_without_one(
    machines: Machines, reference: Reference
) -> None:
    want = reference.of("vision.py")
    machines.has_private_disks = True
    spec = JobSpec(
        name=NAME,
        program=(str(PROGRAMS / "vision.py"),),
        directory=str(machines.home.parent),
        max_workers=2,
        num_workers=2,
        heartbeat_interval_s=0.1,
        away_limit_s=1.0,
    )
    hold_back(machines, 0.1)
    ledger = machines.directory.ledger_file

    async def drive_for_a_while() -> None:
        engine, driver = machines.make_driver(spec, spec, "fork", _Look(machines.directory.checkpoints))
        task = asyncio.create_task(driver.run())
        await asyncio.to_thread(wait_for, lambda: task.done() or num_lines(ledger) >= 3, "three steps")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await engine.detach()

    async def drive_to_the_end() -> Outcome:
        _, driver = machines.make_driver(None, spec, "fork", look)
        return await driver.run()

    asyncio.run(drive_for_a_while())
    assert not list(machines.directory.checkpoints.glob("step-*"))

    def all_exited() -> bool:
        records = [json.loads((machines.disk(node) / "engine.json").read_text()) for node in NODES]
        return all(worker["exit_code"] is not None for record in records for worker in record["workers"].values())

    wait_for(all_exited, "the workers end by themselves")
    assert len([path for node in NODES for path in machines.disk(node).glob("checkpoints/step-*.legato")]) == 1
    hold_back(machines, 0.0)
    look = _Look(machines.directory.checkpoints)
    result = machines.collect(asyncio.run(drive_to_the_end()))
    assert look.seen and all(look.seen), "workers start when their checkpoint is here"
    told = [event["reason"] for event in result.of_kind("note")]
    assert any(text.startswith("Resumed from") for text in told), result.story()
    result.check(want, has_all_losses=False)


def test_a_job_stops_when_its_last_checkpoint_has_come(machines: Machines, reference: Reference) -> None:
    want = reference.of("vision.py")
    machines.has_private_disks = True
    outcome = machines.run("vision.py", workers=(1, 2, 2), plan=[Act(at_step(4), stop, "stop")]).outcome
    assert outcome.outcome == "stopped", outcome
    (kept,) = machines.directory.checkpoints.iterdir()
    assert kept.stat().st_size > 0
    machines.run("vision.py", workers=(1, 2, 2), resume=True).check(want, finishers=2)
