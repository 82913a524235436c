"""A server's own machine in a pool of several servers: its name, its place in the pool, the agents of its jobs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.platform import Platform

from legato.agent.orders import AgentOrder, read_agent_order
from legato.control.drivers.drivers import DriverOrder
from legato.control.drivers.process import DoorOrder, LocalOrder, write_order
from legato.control.records import AGENT, AGENT_SILENT_S, LOCAL
from legato.control.settings import Settings
from legato.core.errors import UsageError
from legato.core.spec import JobSpec
from legato.engines.agents import RECORD
from legato.engines.agents_record import AgentsRecord, write_record
from legato.server import own_machine, serving, startup_checks
from legato.server.machine import Declaration, DoorFinder, find_own_address, name_node, name_shared_node
from legato.server.own_machine import OwnMachine
from legato.server.startup_checks import hold_home
from legato.system.hosts import NAMES, Machine

A = Machine("a", "1" * 32, "boot-of-a")
B = Machine("b", "2" * 32, "boot-of-b")
JOB = "j-0000000001"


def make_own(platform: Platform, machine: Machine, node: str = "", address: str = "10.0.0.2") -> OwnMachine:
    jobs = platform.home / "jobs"
    return OwnMachine(
        platform.store,
        jobs,
        node or machine.name,
        machine,
        ("cpu", "cpu"),
        find_address=lambda: address,
        now=lambda: platform.now,
    )


# ---------------------------------------------------------------- names


def test_each_machine_has_a_name_in_a_shared_home_and_keeps_it(tmp_path: Path) -> None:
    assert name_shared_node(tmp_path, A) == name_node(tmp_path)
    first = name_node(tmp_path)
    assert name_shared_node(tmp_path, B) == "b"
    assert name_shared_node(tmp_path, Machine("renamed", B.id, "after a boot")) == "b"
    assert name_shared_node(tmp_path, Machine("renamed", A.id, "after a boot")) == first
    with pytest.raises(UsageError, match=r"has the name 'b' in the pool. Give this machine another host name") as said:
        name_shared_node(tmp_path, Machine("b", "3" * 32, ""))
    assert f"delete {tmp_path / NAMES / B.key}" in str(said.value)
    # Without an id, as in many containers, the host name is what a machine is known by.
    assert name_shared_node(tmp_path, Machine("c", "", "")) == "c"
    assert name_shared_node(tmp_path, Machine("c", "", "another")) == "c"


def test_the_name_that_a_home_has_from_an_earlier_release_goes_to_the_first_machine(tmp_path: Path) -> None:
    (tmp_path / "node").write_text("old-name\n")
    assert name_shared_node(tmp_path, A) == "old-name"
    assert name_shared_node(tmp_path, B) == "b"


# ---------------------------------------------------------------- SQLite


def on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_checks, "find_this_machine", lambda: machine)


def crash(home: Path) -> None:
    """Leave the lock as a server does that is killed: with its machine."""
    with contextlib.suppress(ZeroDivisionError), hold_home(home, is_shared=False):
        content = (home / "server.lock").read_bytes()
        raise ZeroDivisionError
    (home / "server.lock").write_bytes(content)


def test_a_home_with_sqlite_that_another_machine_uses_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(A, monkeypatch)
    crash(tmp_path)
    on(B, monkeypatch)
    with pytest.raises(UsageError) as said, hold_home(tmp_path, is_shared=False):
        pass
    assert f"'{tmp_path}' is in use by the machine a." in str(said.value)
    assert f"delete '{tmp_path / 'server.lock'}'" in str(said.value) and "use PostgreSQL" in str(said.value)
    on(Machine("renamed", A.id, "after a boot"), monkeypatch)
    with hold_home(tmp_path, is_shared=False):
        pass
    on(B, monkeypatch)
    with hold_home(tmp_path, is_shared=False):
        pass  # the server stopped, and no job runs
    on(A, monkeypatch)
    crash(tmp_path)
    (tmp_path / "server.lock").unlink()
    on(B, monkeypatch)
    with hold_home(tmp_path, is_shared=False):
        pass


def test_a_server_that_stops_while_jobs_run_leaves_the_home_to_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup_checks, "list_platform_jobs", lambda _home: [Running()])
    on(A, monkeypatch)
    with hold_home(tmp_path, is_shared=False):
        pass
    on(B, monkeypatch)
    with pytest.raises(UsageError, match="in use by the machine a"), hold_home(tmp_path, is_shared=False):
        pass


class Running:
    def is_locked(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (Machine("renamed", "1" * 32, "another boot"), True),
        (Machine("a", "2" * 32, "another boot"), False),
        (Machine("b", "", "boot-of-a"), True),  # containers of one machine
        (Machine("a", "", "another boot"), True),
        (Machine("b", "", ""), False),
    ],
)
def test_a_machine_is_known_by_its_boot_its_id_or_else_its_name(other: Machine, is_same: bool) -> None:
    assert A.is_same(other) is other.is_same(A) is is_same


# ---------------------------------------------------------------- the pool


def declare(platform: Platform, declaration: Declaration) -> dict[str, Any]:
    lease = platform.store.loop.take_lease(f"of {declaration}", platform.now, 10.0)
    assert lease is not None
    declaration.refresh(lease, platform.now)
    platform.store.loop.end_lease(platform.now)
    engines = {node.name: node.engine for node in platform.store.pool.list_nodes()}
    return {slot.id: (engines[slot.node], slot.unusable_reason) for slot in platform.store.pool.list_slots()}


def test_whichever_server_leads_has_the_machines_of_the_others_in_its_pool(platform: Platform) -> None:
    for machine in (A, B):
        make_own(platform, machine).keep()
    leading_a, leading_b = (Declaration(platform.store, name, ("cpu", "cpu")) for name in "ab")
    slots = declare(platform, leading_a)
    assert slots == {"a/0": (LOCAL, None), "a/1": (LOCAL, None), "b/0": (AGENT, None), "b/1": (AGENT, None)}
    platform.now += AGENT_SILENT_S + 1
    make_own(platform, B).keep()
    slots = declare(platform, leading_b)
    assert slots["a/0"] == (AGENT, "its server does not answer")
    assert slots["b/0"] == (LOCAL, None)
    # The machine of the server that leads can be drained like any other.
    assert platform.ask("POST", "nodes/b/drain", {"reason": "a new disk"}, who="admin").status_code == 204
    assert declare(platform, leading_b)["b/0"] == (LOCAL, "admin drains its machine: a new disk")


def test_a_copied_disk_is_not_mistaken_for_a_machine_that_has_booted(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_own(platform, A).join()
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock[0] += seconds
        platform.now += seconds

    clock = [0.0]
    monkeypatch.setattr(own_machine.time, "sleep", sleep)
    monkeypatch.setattr(own_machine.time, "monotonic", lambda: clock[0])
    make_own(platform, Machine("a", A.id, "after a boot")).join()
    assert AGENT_SILENT_S - 1 <= sum(waited) <= AGENT_SILENT_S + 2, "until the former one counts as silent"

    def sleep_beside(seconds: float) -> None:
        sleep(seconds)
        make_own(platform, Machine("a", A.id, "after a boot")).keep()

    monkeypatch.setattr(own_machine.time, "sleep", sleep_beside)
    with pytest.raises(UsageError, match=r"the server of another machine has this name.*systemd-machine-id-setup"):
        make_own(platform, A).join()


def test_drivers_of_several_servers_listen_for_all_machines_from_the_first_attempt_on(platform: Platform) -> None:
    settings = Settings(home=str(platform.home), host="10.0.0.1")
    declaration = Declaration(platform.store, "a", ("cpu",))
    find_address = functools.partial(find_own_address, settings, platform.store, "a")
    assert DoorFinder(settings, declaration, find_address)() is None
    door = DoorFinder(settings, declaration, find_address, is_shared=True)()
    assert door == DoorOrder(host="10.0.0.1", address="10.0.0.1", is_shared=True)


# ---------------------------------------------------------------- the agents of its jobs


def test_a_server_that_does_not_lead_keeps_the_agents_of_jobs_on_its_machine(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Path, AgentOrder]] = []
    running = [False]
    monkeypatch.setattr(own_machine, "start_agent", lambda folder, order: started.append((folder, order)))
    monkeypatch.setattr(own_machine, "is_running", lambda _folder: running[0])
    directory = platform.home / "jobs" / JOB
    directory.mkdir(parents=True)
    spec = JobSpec(name=JOB, program=("train.py",), directory="/", min_workers=1, max_workers=2, num_workers=2)
    order = DriverOrder(job=JOB, attempt=1, spec=spec, slots=("a/0", "b/0"))
    door = DoorOrder(host="0.0.0.0", address="10.0.0.1", is_shared=True)
    found = LocalOrder(order=order, slots=order.slots, devices=("cpu",), own_node="a", door=door)
    write_order(directory, found)
    own = make_own(platform, B)
    own._keep_agent(directory)
    assert started == [], "the driver does not listen yet"
    write_record(directory / RECORD, AgentsRecord("secret", port=4711, certificate="PEM"))
    own._keep_agent(directory)
    want = AgentOrder(
        job=JOB,
        node="b",
        urls=("wss://10.0.0.1:4711/agent",),
        token="secret",
        address="10.0.0.2",
        num_slots=2,
        certificate="PEM",
    )
    assert started == [(directory / "agent-b", want)]
    make_own(platform, A)._keep_agent(directory)
    assert len(started) == 1, "the driver keeps the agent of its own machine"

    # It runs: it is only shown where the driver is now.
    running[0] = True
    own_machine.write_agent_order(directory / "agent-b", want)
    write_record(directory / RECORD, AgentsRecord("secret", port=4712, certificate="PEM"))
    own._keep_agent(directory)
    assert read_agent_order(directory / "agent-b").urls == ("wss://10.0.0.1:4712/agent",)
    assert len(started) == 1


def test_one_job_whose_files_are_damaged_costs_the_machine_nothing(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_own(platform, B)
    kept: list[str] = []

    def keep_agent(directory: Path) -> None:
        kept.append(directory.name)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(own, "_keep_agent", keep_agent)
    held = [type("Held", (), {"slot": "b/0", "job": name})() for name in ("j-1", "j-2")]
    held.append(type("Held", (), {"slot": "a/0", "job": "j-3"})())
    monkeypatch.setattr(type(platform.store.pool), "list_open", lambda _self: held)
    own.keep()
    assert kept == ["j-1", "j-2"]

    async def fails_once() -> None:
        def fail() -> None:
            rounds.append(len(rounds))
            if len(rounds) == 2:
                raise asyncio.CancelledError
            raise OSError(5, "Input/output error")

        rounds: list[int] = []
        monkeypatch.setattr(own, "keep", fail)
        monkeypatch.setattr(own_machine, "BEAT_EVERY_S", 0)
        with pytest.raises(asyncio.CancelledError):
            await own.run()
        assert rounds == [0, 1], "it tries again"

    asyncio.run(fails_once())


# ---------------------------------------------------------------- starting


@pytest.mark.parametrize(
    ("is_open", "run_jobs_as", "told"),
    [(False, "server", "it listens on the loopback address"), (True, "pool", "the setting run_jobs_as")],
)
def test_a_server_that_cannot_take_part_is_refused_beside_servers_of_other_machines(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, is_open: bool, run_jobs_as: str, told: str
) -> None:
    monkeypatch.setattr(serving, "find_this_machine", lambda: A)
    settings = Settings(home=str(platform.home), database_url="postgresql://nowhere/x", run_jobs_as=run_jobs_as)
    alone = serving._find_here(settings, platform.store, ("cpu",), is_open=is_open)
    assert alone.own is None
    name_shared_node(platform.home, B)
    with pytest.raises(UsageError, match=rf"servers on b use .*{told}.*--api-only.*delete .*{B.key}"):
        serving._find_here(settings, platform.store, ("cpu",), is_open=is_open)


def test_a_server_on_postgresql_that_others_reach_keeps_its_machine_in_the_pool(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "find_this_machine", lambda: A)
    settings = Settings(
        home=str(platform.home), database_url="postgresql://nowhere/x", host="10.0.0.1", run_jobs_as="server"
    )
    here = serving._find_here(settings, platform.store, ("cpu",), is_open=True)
    assert here.own is not None
    (agent,) = platform.store.agents.list()
    assert (agent.node, agent.address, agent.devices, agent.is_server) == (here.node, "10.0.0.1", ("cpu",), True)
