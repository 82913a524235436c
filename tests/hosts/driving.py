"""A job whose driver, on some host, has no server: what it needs, and the driver as a process.

``python -m tests.hosts.driving PLAN`` runs the driver; the plan is a JSON file (`Plan`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.hosts.bed import DISK, Hosts

from legato.agent.orders import AgentOrder, write_agent_order
from legato.core.agent_messages import OpenJob
from legato.core.errors import LegatoError, UsageError
from legato.core.spec import JobSpec
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory
from legato.driver.record import Event
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, RECORD, AgentsEngine
from legato.engines.agents_record import AgentsRecord
from legato.engines.base import Launch
from legato.system.door import Door

SLOT_VARIABLE: Final = "LEGATO_TEST_SLOT"
EXIT_STOPPED: Final = 3
"""Of a driver that stopped leading, or could not lead."""
JOB_AGENT: Final = "legato.agent.process"
"""The module of the agents of jobs."""

PORT: Final = 4500
"""Of the driver, on all addresses of its host."""
_TOKEN: Final = "token-of-the-agents"
_PLAN: Final = "plan.json"


class Plan(msgspec.Struct):
    """What a driver needs.

    Args:
        spec: of the job.
        home: of Legato; on a disk that all hosts share.
        nodes: name of each host → number of its slots.
        lease_s: of the agents.
        silence_limit_s: until a host counts as lost.
        folder: where the driver writes ``status.json``, and reads the number of workers from ``wanted``.
        has_private_disks: the hosts do not share the directory of checkpoints.
    """

    spec: JobSpec
    home: str
    nodes: dict[str, int]
    lease_s: float
    silence_limit_s: float
    folder: str
    has_private_disks: bool = False


def prepare(hosts: Hosts, plan: Plan, address: Callable[[int], str] | None = None) -> None:
    """Write what the agents of the job, each on the disk of its host, and the driver, on any host, read.

    Args:
        hosts: that are up.
        plan: of the job.
        address: of a host, at which the others reach it. None: its IPv4 address.
    """
    address = address or hosts.address
    directory = JobDirectory.of(plan.spec.name, Path(plan.home))
    directory.path.mkdir(parents=True)
    (directory.path / RECORD).write_bytes(msgspec.json.encode(AgentsRecord(_TOKEN)))
    Path(plan.folder, _PLAN).write_bytes(msgspec.json.encode(plan))
    Path(plan.folder, "wanted").write_text(str(plan.spec.num_workers))
    addresses = [address(host) for host in hosts.numbers]
    urls = tuple(f"ws://{f'[{one}]' if ':' in one else one}:{PORT}{PATH}" for one in addresses)
    for host in (host for host in hosts.numbers if hosts.name(host) in plan.nodes):
        order = AgentOrder(
            job=plan.spec.name,
            node=hosts.name(host),
            urls=urls,
            token=_TOKEN,
            address=address(host),
            num_slots=plan.nodes[hosts.name(host)],
        )
        write_agent_order(hosts.disk(host) / "agent", order)


def command_of_agent() -> list[str]:
    """Return the command that starts the agent of a host, and ends at once."""
    return [sys.executable, "-m", JOB_AGENT, f"{DISK}/agent"]


def command_of_driver(folder: Path) -> list[str]:
    """Return the command that runs the driver to the end of the job; the folder is that of the plan."""
    return [sys.executable, "-m", __spec__.name, str(folder / _PLAN)]


class _Engine(AgentsEngine):
    async def start(self, launch: Launch) -> None:
        """Tell the worker its slot, which the program locks."""
        variables = {**launch.environment, SLOT_VARIABLE: launch.slot}
        await super().start(msgspec.structs.replace(launch, environment=variables))


class _PrivateDisks(_Engine):
    def _mark_checkpoints(self) -> None:
        super()._mark_checkpoints()
        self._job = msgspec.structs.replace(self._job, mark="not-there")


class _Observer:
    def __init__(self, folder: Path, engine: AgentsEngine) -> None:
        self._folder = folder
        self._engine = engine
        self._wanted = ""
        self.driver: Driver | None = None

    def on_event(self, event: Event) -> None:
        pass

    def on_status(self, status: dict[str, Any]) -> None:
        """Write the status, and scale if that is asked for."""
        store = self._engine._store  # the driver itself does not show it
        scratch = self._folder / "status.new"
        scratch.write_bytes(msgspec.json.encode({**status, "store": store.spec.name if store else None}))
        scratch.replace(self._folder / "status.json")
        wanted = (self._folder / "wanted").read_text()
        if wanted != self._wanted and self.driver is not None and status.get("outcome") is None:
            self._wanted = wanted
            try:
                self.driver.scale(int(wanted), "the schedule")
            except UsageError as error:
                logging.getLogger(__name__).warning("%s", error)


async def _drive(plan: Plan) -> int:
    directory = JobDirectory.of(plan.spec.name, Path(plan.home))
    door = Door(host="", port=PORT, paths=("/worker", "/client", PATH))
    engine = (_PrivateDisks if plan.has_private_disks else _Engine)(
        directory.path,
        door,
        [NodeSpec(name, slots) for name, slots in plan.nodes.items()],
        OpenJob(environment=plan.spec.variables, directory=plan.spec.directory),
        log_path=directory.log_path,
        checkpoints=directory.checkpoints if plan.has_private_disks else None,
        keep=plan.spec.keep,
        lease_s=plan.lease_s,
        silence_limit_s=plan.silence_limit_s,
    )
    journal = directory.read_journal("")
    spec = plan.spec if journal is None or journal.snapshot is None else None
    observer = _Observer(Path(plan.folder), engine)
    driver = Driver(spec, engine, directory, observer=observer, available=lambda: engine.slots, door=door)
    observer.driver = driver
    try:
        outcome = await driver.run()
    except LegatoError as error:
        print(f"the driver ends: {error}", flush=True)
        await engine.detach()
        return EXIT_STOPPED
    print(outcome, flush=True)
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    sys.exit(asyncio.run(_drive(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan))))
