"""A driver as a separate process: ``python -m legato.control.drivers.process DIRECTORY [NODE]``.

The process reads its order from the job's directory. It runs the job to its end, or adopts the workers of an earlier
driver of the same attempt. The server that started it may die and restart. NODE is the name of this machine: if a
server of another machine has taken the job over, the process ends. Decides nothing about slots.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from legato.control.drivers.drivers import DriverOrder
from legato.control.drivers.own_agent import OwnAgent
from legato.control.work import DATA_VARIABLE, check_places
from legato.core.agent_messages import OpenJob
from legato.core.errors import JobDriven, LegatoError, MachinesRefused, Superseded, UsageError
from legato.core.job_user import JobUser
from legato.core.slots import name_slot, node_of
from legato.core.spec import JobSpec
from legato.core.terms import is_of_later_lease
from legato.driver.driver import Driver
from legato.driver.events import MembershipSnapshot
from legato.driver.journal import (
    LOCK,
    JobDirectory,
    JobJournal,
    Outcome,
    find_moves,
    find_places,
    move_record,
    replace_file,
)
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, AgentsEngine
from legato.engines.base import Engine
from legato.engines.imports import imported_packages
from legato.engines.interpreter import find_python
from legato.engines.job_users import check_reach
from legato.engines.local import LocalEngine
from legato.system.decoding import decode
from legato.system.door import Door

_log = logging.getLogger(__name__)

ORDER_FILE: Final = "order.json"
_AGENT: Final = "agent"

_PACKAGE: Final = Path(__file__).resolve().parents[2]  # the folder of Legato's package


class DoorOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Where a driver listens for the agents of other machines.

    Args:
        host: address to listen on.
        ports: the first and the last port that it may use. None: any free one.
        address: at which other machines reach the driver, and the workers of this machine.
        is_shared: machines of several servers share the home, and each of them may take the attempt over.
    """

    host: str
    ports: tuple[int, int] | None = None
    address: str
    is_shared: bool = False


class LocalOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is in ``order.json``.

    Args:
        order: as given to `Drivers.start`.
        slots: its slots. Numbers of this machine's slots, if an earlier release wrote the order.
        devices: the torch device of each slot of this machine, by number.
        places: the folders that paths of the order may be in, with their locations when the order was written.
        user: the system user of the job's processes. None: the user of the driver.
        own_node: the name of this machine in the pool. "": that of the first slot, which an earlier release used.
        door: where the driver listens for agents. None: the attempt uses slots of this machine only.
    """

    order: DriverOrder
    slots: tuple[int | str, ...]
    devices: tuple[str, ...]
    places: dict[str, str] = {}
    user: JobUser | None = None
    own_node: str = ""
    door: DoorOrder | None = None

    @property
    def node(self) -> str:
        """The name of this machine in the pool."""
        return self.own_node or node_of(self.order.slots[0])

    @property
    def is_shared(self) -> bool:
        """Whether a server of another machine may take the attempt over."""
        return self.door is not None and self.door.is_shared

    @property
    def lock_name(self) -> str:
        """The file that the attempt's driver locks: one for each machine, because not all shared disks know locks."""
        return f"{LOCK}-{self.node}" if self.is_shared else LOCK

    def agent_folder(self, node: str) -> str:
        """Return the folder of the agent of a server's machine, in the job's directory."""
        return f"{_AGENT}-{node}" if self.is_shared else _AGENT

    @property
    def is_numbered(self) -> bool:
        """Whether an earlier release wrote it, whose server or driver may still run and knows numbers of slots only."""
        return any(isinstance(slot, int) for slot in self.slots)


def read_order(directory: Path) -> LocalOrder | None:
    """Return the order in a job's directory, None if there is none. Paths are adapted if the home was moved.

    Raises:
        LegatoError: the file cannot be read.
    """
    try:
        found = decode((directory / ORDER_FILE).read_bytes(), LocalOrder)
        moves = find_moves(found.order.spec, found.places, directory)
        user = None if found.user is None else move_record(found.user, moves)
        return msgspec.structs.replace(found, order=move_record(found.order, moves), user=user)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LegatoError(f"Cannot read the order {directory / ORDER_FILE}: {error}.") from error


def write_order(directory: Path, order: LocalOrder) -> None:
    """Write the order into a job's directory."""
    replace_file(
        directory / ORDER_FILE, msgspec.json.encode(msgspec.structs.replace(order, places=find_places(directory)))
    )


def main(path: Path, node: str | None = None) -> int:
    """Carry out the order in a job's directory; returns the exit code of this process, which is not used.

    Args:
        path: the directory.
        node: the name of this machine. None: a server of an earlier release started the process.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # This logger reports each connection, which says nothing about the job.
    logging.getLogger("websockets").setLevel(logging.WARNING)
    found = read_order(path)
    if found is None:
        _log.error("There is no %s in %s", ORDER_FILE, path)
        return 2
    directory = JobDirectory(path, found.user, found.lock_name)
    try:
        if node not in (None, found.node):
            raise Superseded(
                f"A server on {found.node} has taken over job {found.order.job}: this driver of {node} ends."
            )
        outcome = asyncio.run(_drive(found, directory))
    except JobDriven:
        _log.exception("Another driver runs job %s", found.order.job)
        return 1
    except Superseded as error:
        # Not a failure: another driver leads the job, or none may, and its workers train on.
        _log.error("%s", error)
        return 1
    except UsageError as error:
        return _refuse(found, directory, error)
    except LegatoError:
        # This does not end the job: its workers continue, and the next driver adopts them.
        _log.exception("The driver of job %s failed before its job ended", found.order.job)
        return 1
    _log.info("The job %s: %s", outcome.outcome, outcome.reason)
    return 0


async def _drive(found: LocalOrder, directory: JobDirectory) -> Outcome:
    order = found.order
    journal = await asyncio.to_thread(directory.read_journal, found.node)
    begun = journal is not None and journal.attempt == order.attempt
    if begun and journal is not None and journal.outcome is not None:
        return journal.outcome
    script = order.find_script()
    if not begun and found.door is None:
        if found.user is not None:
            directory.make()
            directory.share_with_job()
        await asyncio.to_thread(
            check_places,
            "it cannot run",
            "this machine",
            directory=order.spec.directory,
            program=script,
            data=order.spec.environment.get(DATA_VARIABLE),
            user=found.user,
        )
        if found.user is not None:
            places = [order.spec.directory, order.spec.environment.get(DATA_VARIABLE)]
            await asyncio.to_thread(check_reach, found.user, [place for place in places if place is not None])
    python = order.spec.python
    if begun:
        # Workers run with the one that was found at the beginning.
        python = None if journal is None else journal.spec.python
    elif python is not None and found.door is None:
        python = str(await asyncio.to_thread(find_python, python, found.user))
    wished: tuple[str, ...] = ()
    if script is not None and order.preloads:
        with contextlib.suppress(OSError):  # other machines may have a directory that this one does not have
            wished = imported_packages(Path(order.spec.directory, script), python=python)
    engine: Engine
    door: Door | None = None
    if found.door is None:
        engine = LocalEngine(
            directory.path,
            found.devices,
            node=found.node,
            environment=order.spec.variables,
            directory=order.spec.directory,
            limits=order.spec.limits,
            wished=wished,
            python=python,
            cpu_capability=order.spec.cpu_capability,
            user=found.user,
        )
    else:
        snapshot = journal.snapshot if begun and journal is not None else None
        engine, door = make_agents_engine(found, found.door, directory, wished, list_nodes(found, snapshot))
    spec = None if begun else msgspec.structs.replace(order.spec, python=python)
    slots = tuple(name_slot(slot, found.node) for slot in found.slots)
    driver = Driver(
        spec,
        engine,
        directory,
        slots=slots,
        node=found.node,
        numbers_slots=found.is_numbered,
        attempt=order.attempt,
        term=order.term,
        door=door,
    )
    return await driver.run()


def list_nodes(found: LocalOrder, snapshot: MembershipSnapshot | None) -> tuple[str, ...]:
    """Return the machines whose agents a driver waits for when it begins.

    Args:
        found: the order, with the slots at the beginning of the attempt.
        snapshot: of an attempt that has begun. The job may have left machines since, and has no agents there.
    """
    begun_on = tuple(dict.fromkeys(node_of(name_slot(slot, found.node)) for slot in found.slots))
    return begun_on if snapshot is None else snapshot.nodes or begun_on


def make_agents_engine(
    found: LocalOrder, said: DoorOrder, directory: JobDirectory, wished: tuple[str, ...], nodes: tuple[str, ...]
) -> tuple[AgentsEngine, Door]:
    """Return the engine of an attempt that may use all machines of the pool, and the door for their agents.

    Args:
        found: the order.
        said: where the driver listens.
        directory: of the job.
        wished: packages that the workers' warm parents import.
        nodes: the machines with which it begins; it takes others when the driver names a slot of them.
    """
    spec = found.order.spec
    door = Door(said.host, ports=said.ports, paths=("/worker", "/client", PATH), is_encrypted=True)
    opening = OpenJob(
        environment=spec.variables,
        directory=spec.directory,
        wished=wished,
        limits=spec.limits,
        python=spec.python,
        cpu_capability=spec.cpu_capability,
        log_max_bytes=spec.log_max_bytes,
        copies_program=False,
        data=spec.environment.get(DATA_VARIABLE, ""),
        package=str(_PACKAGE),
        has_earlier=spec.resume,
    )
    engine = AgentsEngine(
        directory.path,
        door,
        [NodeSpec(node) for node in nodes],
        opening,
        log_path=directory.log_path,
        checkpoints=Path(spec.checkpoint_dir) if spec.checkpoint_dir else directory.checkpoints,
        user=found.user,
        keep=spec.keep,
        results=directory.work,
        starter=OwnAgent(
            found.order.job,
            found.node,
            door,
            said.address,
            found.devices,
            find_folder=lambda node: directory.path / found.agent_folder(node),
            is_shared=found.is_shared,
        ),
        grows=True,
        # Before the workers of the machine count as silent one by one.
        silence_limit_s=min(4.0, 0.8 * spec.heartbeat_limit_s),
        lease_s=find_lease_s(spec),
        read_term=directory.read_term if found.is_shared else None,
    )
    return engine, door


def find_lease_s(spec: JobSpec) -> float:
    """Return after how many seconds without a driver an agent kills its workers.

    Workers without a driver end after ``away_limit_s``, and then save.
    """
    return spec.away_limit_s + spec.stop_limit_s


def _refuse(found: LocalOrder, directory: JobDirectory, error: UsageError) -> int:
    """Let a job that cannot be run end as failed, unless another driver has it."""
    order = found.order
    _log.error("Job %s ends before its start: %s", order.job, error)

    def check() -> None:
        newest = directory.read_term()
        if newest > term:
            raise Superseded(f"Another driver has taken over job {order.job}: it has term {newest}.")

    with contextlib.suppress(UsageError, Superseded):
        directory.lock()
        journal, term = directory.read_journal(), directory.read_term()
        is_over = is_of_later_lease(term, order.term) or (journal is not None and journal.attempt >= order.attempt)
        if not is_over:
            refusals = error.refusals if isinstance(error, MachinesRefused) else {}
            outcome = Outcome("failed", 2, str(error), refusals)
            # The drivers of the next attempt take higher terms than those of earlier attempts, whose agents may live.
            end = JobJournal(spec=order.spec, token="", attempt=order.attempt, outcome=outcome, term=term)
            directory.write_journal(end, check=check)
        directory.unlock()
    return 2


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:3]))
