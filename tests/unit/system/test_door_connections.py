"""Connections that wait for their admission at a door: limited in number, so that they harm no admitted one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection

from legato.system.door import LOOPBACK, Door
from legato.system.door_connections import Waiting
from legato.system.tls import choose_tls

LIMIT_S = 30.0
PATH = "/agent"


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(limited())


async def echo(connection: ServerConnection) -> None:
    async for frame in connection:
        await connection.send(frame)


async def enter(door: Door) -> ClientConnection:
    return await connect(door.url(PATH), proxy=None, **choose_tls(door.certificate))


async def says(connection: ClientConnection) -> str:
    await connection.send("hello")
    return str(await connection.recv())


def make_door(*, is_encrypted: bool) -> Door:
    door = Door(paths=(PATH,), is_encrypted=is_encrypted)
    door._waiting = Waiting(8, 4)
    door.mount((PATH,), lambda *_: None, echo)
    return door


async def wait_until_dropped(peers: list[socket.socket]) -> None:
    loop = asyncio.get_running_loop()
    for peer in peers:
        with contextlib.suppress(ConnectionResetError):
            assert await loop.sock_recv(peer, 1) == b""


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_connections_that_say_nothing_make_room_for_new_ones_and_end_no_admitted_one(*, is_encrypted: bool) -> None:
    async def test() -> None:
        door = make_door(is_encrypted=is_encrypted)
        await door.open()
        admitted = [await enter(door) for _ in range(10)]
        with contextlib.ExitStack() as stack:
            silent = []
            for _ in range(40):
                peer = stack.enter_context(socket.socket())
                peer.setblocking(False)
                await asyncio.get_running_loop().sock_connect(peer, (LOOPBACK, door.port))
                silent.append(peer)
            await wait_until_dropped(silent[:36])
            assert len(door._waiting._transports) == 4
            admitted.append(await enter(door))
            assert [await says(each) for each in admitted] == ["hello"] * 11
            await door.close()
            await wait_until_dropped(silent)
        for each in admitted:
            await each.close()

    run(test)


class Transport(asyncio.Transport):
    """The socket of a connection from an address."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 4711)})
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False


def test_an_address_with_many_connections_takes_no_room_of_others() -> None:
    waiting = Waiting(max_all=6, max_of_address=4)

    def add(address: str, num: int) -> list[Transport]:
        added = [Transport(address) for _ in range(num)]
        for transport in added:
            waiting.add(object(), transport)  # type: ignore[arg-type]
        return added

    few = add("10.0.0.1", 2)
    many = add("10.0.0.2", 50)
    assert sum(each.is_open for each in many) == 4 and all(each.is_open for each in many[-4:])
    others = add("10.0.0.3", 1) + add("10.0.0.4", 1)
    assert sum(each.is_open for each in many) == 2, "the address with the most makes room"
    assert all(each.is_open for each in few + others)


FLOOD = """
import resource, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
made = []
for _ in range(300):
    try:
        made.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5))
    except OSError:
        pass
print(len(made), flush=True)
sys.stdin.read()
"""
FEW_FILES = """
import asyncio, resource, sys, tempfile
resource.setrlimit(resource.RLIMIT_NOFILE, (160, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from legato.system.door import Door

async def main():
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context["message"]))
    door = Door(paths=("/agent",), is_encrypted=True)
    await door.open()
    flood = await asyncio.create_subprocess_exec(
        sys.executable, "-c", sys.argv[1], str(door.port), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    ready = asyncio.create_task(flood.stdout.readline())
    while not ready.done():
        with tempfile.TemporaryFile():  # a record is written
            pass
        await asyncio.sleep(0)
    assert int(ready.result()) == 300
    flood.stdin.close()
    await flood.wait()
    await door.close()
    print(errors)

asyncio.run(main())
"""


def test_a_flood_of_connections_leaves_a_process_with_few_open_files_room_for_its_own() -> None:
    command = [sys.executable, "-c", FEW_FILES, FLOOD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
