"""Whom an agent trusts: the driver of its order, and system users of jobs that it may become (`legato.agent.agent`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from legato.agent.agent import Agent
from legato.agent.orders import AgentOrder, write_agent_order
from legato.core.agent_messages import (
    AgentEnvelope,
    AgentHello,
    AgentRefused,
    AgentWelcome,
    Beat,
    OpenJob,
    OpenRefused,
    decode_agent_message,
    encode_agent_frame,
)
from legato.driver.journal import Address, JobDirectory
from legato.system.door import Door

LIMIT_S = 30.0


async def hear(connection: ServerConnection) -> AgentEnvelope:
    frame = await connection.recv()
    assert isinstance(frame, bytes)
    return decode_agent_message(frame)


@pytest.mark.parametrize(
    ("user", "told"),
    [
        ("no-such-user-here", "it has no system user 'no-such-user-here', as whom this job runs: make that user"),
        ("root", "the job would run there as the system user 'root', which can do all that the agent can: choose"),
    ],
)
def test_an_agent_refuses_a_job_of_a_user_that_it_cannot_or_must_not_become(
    tmp_path: Path, user: str, told: str
) -> None:
    refused: list[OpenRefused] = []

    async def lead(connection: ServerConnection) -> None:
        assert isinstance(await hear(connection), AgentHello)
        await connection.send(encode_agent_frame(AgentWelcome(term=2, beat_every_s=0.1, lease_s=60.0)))
        await connection.send(encode_agent_frame(OpenJob(environment={}, directory=str(tmp_path), user=user)))
        while not isinstance(said := await hear(connection), OpenRefused):
            assert isinstance(said, Beat)
        refused.append(said)
        await connection.send(encode_agent_frame(AgentRefused(reason="the test is over")))

    async def run() -> None:
        async with serve(lead, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            url = f"ws://127.0.0.1:{port}/agent"
            order = AgentOrder(job="job", node="h2", urls=(url,), token="token", address="127.0.0.1")
            write_agent_order(tmp_path, order)
            await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert [one.reason.startswith(told) for one in refused] == [True], refused


def test_an_agent_talks_only_to_the_driver_of_its_order_and_gives_its_workers_the_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = JobDirectory(tmp_path).address_file
    strangers: list[ServerConnection] = []

    async def refuse(connection: ServerConnection) -> None:
        assert isinstance(await hear(connection), AgentHello)
        await connection.send(encode_agent_frame(AgentWelcome(term=2, beat_every_s=0.1, lease_s=60.0)))
        assert isinstance(await hear(connection), Beat)
        await connection.send(encode_agent_frame(AgentRefused(reason="the test is over")))

    async def meet(connection: ServerConnection) -> None:
        strangers.append(connection)

    def admit(*_: object) -> None:
        return None

    async def run() -> Address:
        driver, stranger = (Door(paths=("/agent",), is_encrypted=True) for _ in range(2))
        for door, handle in ((driver, refuse), (stranger, meet)):
            door.mount(("/agent",), admit, handle)
            await door.open()
        order = AgentOrder(
            job="job",
            node="h2",
            urls=(stranger.url("/agent"), driver.url("/agent")),
            token="token",
            address="127.0.0.1",
            certificate=driver.certificate,
        )
        write_agent_order(tmp_path, order)
        address.write_bytes(msgspec.json.encode(Address("ws://10.0.0.1:1/worker", "attempt of the workers")))
        assert "the test is over" in await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)
        wanted = Address(driver.url("/worker"), "attempt of the workers", driver.certificate)
        for door in (driver, stranger):
            await door.close()
        return wanted

    wanted = asyncio.run(run())
    assert msgspec.json.decode(address.read_bytes(), type=Address) == wanted
    assert strangers == []
    (said,) = [record.getMessage() for record in caplog.records if "is not the driver" in record.getMessage()]
    assert "its certificate cannot be verified" in said
