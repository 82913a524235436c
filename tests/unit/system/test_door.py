"""The door of a driver: what happens to connections while it closes."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from legato.system.door import LOOPBACK, Door


@pytest.mark.parametrize("num_turns", range(5))
def test_a_door_that_closes_while_a_peer_connects_keeps_no_socket(num_turns: int) -> None:
    async def play() -> None:
        door = Door()
        await door.open()
        with socket.create_connection((LOOPBACK, door.port)) as peer:
            # The loop accepts the connection, attaches it to the server and begins to serve it in different turns.
            for _ in range(num_turns):
                await asyncio.sleep(0)
            closing = asyncio.create_task(door.close())
            peer.close()
            await closing

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        asyncio.run(play())
        gc.collect()
