"""Keeps the agent of a job on the driver's own machine running, and shows agents of other servers' machines the driver.

A machine of a pool that has no server has a pool agent, which starts the job's agent and knows where the driver is.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from legato.agent.orders import AgentOrder, read_agent_order, write_agent_order
from legato.agent.process import is_running, start_agent
from legato.core.errors import LegatoError, UsageError
from legato.engines.agents import PATH
from legato.system.door import Door

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 2.0


def make_urls(address: str, port: int) -> tuple[str, ...]:
    """Return where agents of other machines find a driver that listens on a port of a machine."""
    return (f"wss://{f'[{address}]' if ':' in address else address}:{port}{PATH}",)


class OwnAgent:
    """Makes the agent of this machine exist; a `legato.engines.agents.Starter`.

    Args:
        job: name of the job.
        node: the name of this machine.
        door: of the driver.
        address: at which other machines reach this machine.
        devices: of this machine's slots.
        find_folder: returns the folder of the agent of a server's machine.
        is_shared: other servers share the home, and so the folders of the agents of their machines.
    """

    def __init__(
        self,
        job: str,
        node: str,
        door: Door,
        address: str,
        devices: Sequence[str],
        *,
        find_folder: Callable[[str], Path],
        is_shared: bool = False,
    ) -> None:
        self._job = job
        self._node = node
        self._door = door
        self._address = address
        self._num_slots = len(devices)
        self._find_folder = find_folder
        self._is_shared = is_shared

    async def keep(self, node: str, secret: str, refuse: Callable[[str], None]) -> None:
        """Keep the agent of this machine running, until cancelled; see `Starter.keep`."""
        folder = self._find_folder(node)
        if node != self._node:
            # The pool agent or the server of that machine starts it.
            while self._is_shared:
                await asyncio.to_thread(self._show_driver, folder, secret)
                await asyncio.sleep(_LOOK_EVERY_S)
            return
        order = AgentOrder(
            job=self._job,
            node=node,
            urls=(self._door.url(PATH),),
            token=secret,
            address=self._address,
            num_slots=self._num_slots,
            certificate=self._door.certificate,
        )
        trouble = ""
        while True:
            runs = True  # as long as the disk does not say whether it runs
            try:
                runs = await asyncio.to_thread(is_running, folder)
                if not runs:
                    await asyncio.to_thread(start_agent, folder, order)
                elif not await asyncio.to_thread(_has_order, folder, order):
                    await asyncio.to_thread(write_agent_order, folder, order)  # in place of an earlier driver's
                trouble = ""
            except (LegatoError, OSError, subprocess.SubprocessError) as error:
                if not runs:
                    refuse(f"its agent cannot be started: {error}")
                elif str(error) != trouble:
                    trouble = str(error)
                    _log.warning("Cannot show this driver to the agent in %s, which is tried again: %s", folder, error)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _show_driver(self, folder: Path, secret: str) -> None:
        """Write where this driver is into the order of an agent that an earlier driver or another server has started.

        That server need not run for this, so the workers of its machine train on.
        """
        try:
            if not folder.is_dir():
                return
            found = read_agent_order(folder)
            urls = make_urls(self._address, self._door.port)
            order = msgspec.structs.replace(found, urls=urls, token=secret, certificate=self._door.certificate)
            if found != order:
                write_agent_order(folder, order)
        except (LegatoError, OSError) as error:
            _log.warning("Cannot write where this driver is for the agent in %s: %s", folder, error)


def _has_order(folder: Path, order: AgentOrder) -> bool:
    try:
        return read_agent_order(folder) == order
    except UsageError:
        return False  # it cannot be read, so it is written again
