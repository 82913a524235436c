"""Keeps the agent of a job on the driver's own machine running. The agents of other machines are not its concern."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from legato.agent.orders import AgentOrder, read_agent_order, write_agent_order
from legato.agent.process import is_running, start_agent
from legato.engines.agents import PATH
from legato.system.door import Door

_LOOK_EVERY_S: Final = 2.0


class OwnAgent:
    """Makes the agent of this machine exist; a `legato.engines.agents.Starter`.

    Args:
        job: name of the job.
        node: the name of this machine.
        directory: of the agent.
        door: of the driver.
        address: at which workers of other machines reach this machine.
        devices: of this machine's slots.
    """

    def __init__(self, job: str, node: str, directory: Path, door: Door, address: str, devices: Sequence[str]) -> None:
        self._job = job
        self._node = node
        self._directory = directory
        self._door = door
        self._address = address
        self._num_slots = len(devices)

    async def keep(self, node: str, secret: str, refuse: Callable[[str], None]) -> None:
        """Keep the agent of this machine running, until cancelled; see `Starter.keep`."""
        if node != self._node:
            return  # the pool agent of that machine starts it
        order = AgentOrder(
            job=self._job,
            node=node,
            urls=(self._door.url(PATH),),
            token=secret,
            address=self._address,
            num_slots=self._num_slots,
        )
        while True:
            if not await asyncio.to_thread(is_running, self._directory):
                try:
                    await asyncio.to_thread(start_agent, self._directory, order)
                except (OSError, subprocess.SubprocessError) as error:
                    refuse(f"its agent cannot be started: {error}")
            elif await asyncio.to_thread(read_agent_order, self._directory) != order:
                await asyncio.to_thread(write_agent_order, self._directory, order)  # of an earlier driver
            await asyncio.sleep(_LOOK_EVERY_S)
