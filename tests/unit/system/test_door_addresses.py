"""At which addresses a driver's door is reached from its own machine (`legato.system.door`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection

from legato.system.door import Door


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "::1"])
def test_processes_of_the_machine_reach_a_door_on_any_address(host: str) -> None:
    if ":" in host and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")

    async def greet(connection: ServerConnection) -> None:
        await connection.send("welcome")

    async def run() -> str | bytes:
        door = Door(host, paths=("/worker",))
        await door.open()
        door.mount(("/worker",), lambda _connection, _request: None, greet)
        async with connect(door.url("/worker"), proxy=None) as connection:
            told = await connection.recv()
        await door.close()
        return told

    assert asyncio.run(asyncio.wait_for(run(), 30.0)) == "welcome"


def test_a_door_on_all_addresses_has_one_port_for_ipv4_and_ipv6() -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")

    async def run() -> list[str | bytes]:
        door = Door("", paths=("/worker",))
        await door.open()
        door.mount(("/worker",), lambda _connection, _request: None, lambda connection: connection.send("welcome"))
        told = []
        for host in ("127.0.0.1", "[::1]"):
            async with connect(f"ws://{host}:{door.port}/worker", proxy=None) as connection:
                told.append(await connection.recv())
        await door.close()
        return told

    assert asyncio.run(asyncio.wait_for(run(), 30.0)) == ["welcome", "welcome"]
