"""Keeps the machine of a server in the pool while the server of another machine leads.

Several servers share a store and a home. Each reports its own machine to the store, as an agent does, and starts the
agents of jobs that hold slots here. So the machine is a node of the pool whichever server leads. The leading server's
drivers keep the agents of its own machine.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from legato.agent.orders import AgentOrder, read_agent_order, write_agent_order
from legato.agent.process import is_running, start_agent
from legato.control.drivers.own_agent import make_urls
from legato.control.drivers.process import read_order
from legato.control.records import AGENT_SILENT_S, BEAT_EVERY_S, AgentReport
from legato.control.store import Store
from legato.core.errors import Conflict, LegatoError, UsageError
from legato.core.slots import node_of
from legato.core.version import __version__
from legato.engines.agents import RECORD
from legato.engines.agents_record import read_record
from legato.engines.gpus import find_gpu_types
from legato.engines.machine_kind import find_kind
from legato.system.hosts import Machine

_log = structlog.get_logger(__name__)

_POLL_S: Final = 1.0


class OwnMachine:
    """This machine, as a node of the pool.

    Args:
        store: the store of the platform.
        jobs: the folder of all jobs' directories.
        node: the name of this machine.
        machine: this machine.
        devices: the torch device of each slot.
        find_address: returns the address at which other machines reach this one.
        now: returns seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        jobs: Path,
        node: str,
        machine: Machine,
        devices: Sequence[str],
        *,
        find_address: Callable[[], str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._node = node
        self._identity = f"{machine.key}-{machine.boot[:13]}"
        self._devices = tuple(devices)
        self._gpu_types = tuple(find_gpu_types(self._devices))
        self._kind = find_kind()
        self._find_address = find_address
        self._now = now
        self._trouble: str | None = None

    def join(self) -> None:
        """Report this machine for the first time.

        If it has just booted, this waits until its former report has expired: before that, nothing distinguishes it
        from another machine with a copied disk.

        Raises:
            UsageError: another machine has the name, or this one has no address for the others.
        """
        give_up_at = time.monotonic() + AGENT_SILENT_S + _POLL_S
        while True:
            try:
                self._report()
            except Conflict as error:
                if time.monotonic() > give_up_at:
                    raise UsageError(str(error)) from error
                time.sleep(_POLL_S)
            else:
                return

    async def run(self) -> None:
        """Report this machine, and keep the agents of its jobs, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.keep)
            except (LegatoError, OSError) as error:
                self._note_trouble(str(error) or repr(error))
            else:
                self._note_trouble(None)
            await asyncio.sleep(BEAT_EVERY_S)

    def keep(self) -> None:
        """Report once, and start the agents that jobs need here, or show them the present driver.

        Raises:
            LegatoError: the store cannot be used, or this machine has no address for the others.
        """
        self._report()
        jobs = {found.job for found in self._store.pool.list_open() if node_of(found.slot) == self._node}
        for job in sorted(jobs):
            try:
                self._keep_agent(self._jobs / job)
            except (LegatoError, OSError, subprocess.SubprocessError) as error:
                _log.warning("cannot keep the agent of a job on this machine", job=job, error=str(error) or repr(error))

    def _report(self) -> None:
        said = AgentReport(
            devices=self._devices,
            gpu_types=self._gpu_types,
            address=self._find_address(),
            version=__version__,
            kind=self._kind.name,
            traits=self._kind.traits,
        )
        self._store.agents.keep_server(self._node, self._identity, said, self._now())

    def _keep_agent(self, directory: Path) -> None:
        found = read_order(directory)
        if found is None or found.door is None or not found.is_shared or found.node == self._node:
            return  # there is no driver yet, or its own machine is this one
        record = read_record(directory / RECORD)
        if record is None or not record.port or not record.certificate:
            return
        folder = directory / found.agent_folder(self._node)
        order = AgentOrder(
            job=found.order.job,
            node=self._node,
            urls=make_urls(found.door.address, record.port),
            token=record.secret,
            address=self._find_address(),
            num_slots=len(self._devices),
            certificate=record.certificate,
        )
        if not is_running(folder):
            start_agent(folder, order)
        elif read_agent_order(folder) != order:
            write_agent_order(folder, order)

    def _note_trouble(self, trouble: str | None) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble is None:
                _log.info("this machine is in the pool again", node=self._node)
            else:
                _log.warning("this machine cannot be kept in the pool; trying again", node=self._node, error=trouble)
