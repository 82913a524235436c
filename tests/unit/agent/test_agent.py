"""What an agent does by itself, with a driver that only speaks the protocol (`legato.agent.agent`)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from legato.agent import agent as agent_module
from legato.agent import process
from legato.agent.agent import Agent, AgentFailedError
from legato.agent.logs import LogSender
from legato.agent.orders import AgentOrder, read_agent_order, read_state, write_agent_order
from legato.core.agent_messages import (
    Acknowledge,
    AgentEnvelope,
    AgentHello,
    AgentRefused,
    AgentWelcome,
    Beat,
    Closed,
    CloseJob,
    FilePiece,
    FilesTaken,
    OfferFiles,
    Opened,
    OpenJob,
    OpenRefused,
    Outranked,
    Program,
    Remark,
    StartOne,
    WorkerEvent,
    decode_agent_message,
    encode_agent_frame,
)
from legato.core.errors import LegatoError, UsageError
from legato.core.exits import EXIT_REFUSED, EXIT_UNSTARTED
from legato.core.system_metrics import SystemSample
from legato.driver.journal import Address, JobDirectory
from legato.engines import side_work
from legato.engines.base import EngineEvent, Launch
from legato.engines.file_pieces import PieceReceiver
from legato.system.clocks import read_boot_clock

LIMIT_S = 30.0

Kind = TypeVar("Kind", bound=AgentEnvelope)


@contextlib.asynccontextmanager
async def driver_of(directory: Path, lead: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[AgentOrder]:
    """Let a pretended driver listen, and write the order of its agent."""
    async with serve(lead, "127.0.0.1", 0, close_timeout=0.2) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        order = AgentOrder(
            job="job", node="h2", urls=(f"ws://127.0.0.1:{port}/agent",), token="token", address="127.0.0.1"
        )
        write_agent_order(directory, order)
        yield order


async def welcome(connection: ServerConnection, lease_s: float = 60.0) -> AgentHello:
    hello = await hear(connection)
    assert isinstance(hello, AgentHello)
    await send(connection, AgentWelcome(term=2, beat_every_s=0.02, lease_s=lease_s))
    return hello


async def lead_to_opened(connection: ServerConnection, directory: Path) -> None:
    await welcome(connection)
    await send(connection, OpenJob(environment={}, directory=str(directory)))
    await wait_for(connection, Opened)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- several of these conditions have no event
        await asyncio.sleep(0.01)


async def wait_for(connection: ServerConnection, kind: type[Kind]) -> Kind:
    """Return the next message of a kind, and drop those before it."""
    while not isinstance(message := await hear(connection), kind):
        pass
    return message


async def send(connection: ServerConnection, message: AgentEnvelope) -> None:
    await connection.send(encode_agent_frame(message))


async def hear(connection: ServerConnection) -> AgentEnvelope:
    frame = await connection.recv()
    assert isinstance(frame, bytes)
    return decode_agent_message(frame)


def test_an_agent_that_starts_again_tells_its_workers_the_address_of_the_next_driver(tmp_path: Path) -> None:
    file = JobDirectory(tmp_path).address_file
    found: list[Address] = []

    async def lead(connection: ServerConnection) -> None:
        await welcome(connection)
        assert isinstance(await hear(connection), Beat)
        found.append(msgspec.json.decode(file.read_bytes(), type=Address))
        await send(connection, AgentRefused(reason="the test is over"))

    async def run() -> None:
        async with driver_of(tmp_path, lead) as order:
            # An earlier process of the agent wrote it, for workers that still run.
            file.write_bytes(msgspec.json.encode(Address("ws://10.0.0.1:1/worker", "attempt of the workers")))
            assert "the test is over" in await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)
            assert found == [Address(order.urls[0].replace("/agent", "/worker"), "attempt of the workers")]

    asyncio.run(run())


def test_an_agent_obeys_no_driver_of_a_lower_term_also_after_it_was_started_again(tmp_path: Path) -> None:
    terms: list[int] = []
    answers: list[AgentEnvelope] = []

    async def lead(connection: ServerConnection) -> None:
        hello = await hear(connection)
        assert isinstance(hello, AgentHello)
        terms.append(hello.term)
        match len(terms):
            case 1:
                await send(connection, AgentWelcome(term=5, beat_every_s=0.02, lease_s=60.0))
                await wait_for(connection, Beat)
            case 2 | 3:
                await send(connection, AgentWelcome(term=4, beat_every_s=0.02, lease_s=60.0))
                await send(connection, CloseJob())
                answers.append(await hear(connection))
                await connection.wait_closed()
            case _:
                await send(connection, AgentRefused(reason="the test is over"))

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            first = asyncio.create_task(Agent(tmp_path).run())
            await until(lambda: bool(answers) or first.done())
            assert not first.done()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            assert "the test is over" in await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert set(terms[1:]) == {5} and terms[0] == 0
    assert answers == [Outranked(term=5)] * 2


def test_an_agent_gives_a_silent_driver_up_but_none_that_it_could_not_hear_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_SILENCE_LIMIT_S", 0.3)
    monkeypatch.setattr(agent_module, "_RETRY_S", 0.05)
    num_connections = 0
    has_answered: list[int] = []

    async def lead(connection: ServerConnection) -> None:
        nonlocal num_connections
        num_connections += 1
        await welcome(connection)
        if num_connections == 1:
            for _ in range(20):
                await send(connection, await hear(connection))
            time.sleep(1.0)  # noqa: ASYNC251 -- the agent runs in this loop too, and cannot hear this driver either
            for _ in range(20):
                await send(connection, await hear(connection))
            has_answered.append(num_connections)
            await connection.wait_closed()  # as if the network were cut
        await send(connection, AgentRefused(reason="the test is over"))

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            assert "the test is over" in await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert has_answered == [1], "it is not given up while it answers"
    assert num_connections == 2


def test_an_agent_hears_its_driver_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reached, goes_on = threading.Event(), threading.Event()

    def take(_receiver: PieceReceiver, _piece: FilePiece) -> None:
        is_reached.set()
        assert goes_on.wait(LIMIT_S)

    monkeypatch.setattr(PieceReceiver, "take", take)
    agents: list[Agent] = []

    async def lead(connection: ServerConnection) -> None:
        agents[0]._checkpoints._next = ("step-1.legato", 0)  # as if a worker waited for it
        await welcome(connection)
        await send(connection, FilePiece(name="step-1.legato", offset=0, data=b"x", num_bytes=1))
        await asyncio.to_thread(is_reached.wait, LIMIT_S)
        beat = await wait_for(connection, Beat)
        await send(connection, beat)
        async with asyncio.timeout(LIMIT_S / 3):
            await until(lambda: agents[0]._answered_at == beat.sent_s)
        goes_on.set()
        await send(connection, AgentRefused(reason="the test is over"))

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            agents.append(Agent(tmp_path))
            assert "the test is over" in await asyncio.wait_for(agents[0].run(), LIMIT_S)

    try:
        asyncio.run(run())
    finally:
        goes_on.set()


def test_an_agent_does_not_wait_for_the_welcome_of_a_driver_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_OPEN_LIMIT_S", 0.3)
    num_connections = 0

    async def lead(connection: ServerConnection) -> None:
        nonlocal num_connections
        num_connections += 1
        if num_connections == 1:
            await connection.wait_closed()
        await welcome(connection)
        await send(connection, AgentRefused(reason="the test is over"))

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            assert "the test is over" in await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert num_connections == 2


class Engine:
    """An engine with a worker, without a process."""

    devices: tuple[str, ...] = ("cpu",)
    known_workers = (7,)
    opens = True

    def __init__(self, *_: Any, **__: Any) -> None:
        self.last_running = {7: 4711}
        self.is_opening, self.stopped = asyncio.Event(), asyncio.Event()
        self.fault = asyncio.get_running_loop().create_future()
        self.end = ""
        self.num_processes = 0

    async def open(self) -> None:
        self.is_opening.set()
        if not self.opens:
            await asyncio.to_thread(self.start_process)
            await asyncio.Event().wait()

    def start_process(self) -> None:
        time.sleep(0.1)  # as long as a start may take: no other code can end it
        self.num_processes += 1

    async def rendezvous(self) -> str:
        return "127.0.0.1:1"

    async def measure(self) -> dict[str, SystemSample]:
        return {"": SystemSample()}

    async def events(self) -> AsyncIterator[EngineEvent]:
        yield await self.fault

    async def start(self, launch: Launch) -> None:
        if launch.worker == 8:
            raise UsageError("Cannot use slot h2/5: this machine has 1 slots.")
        if launch.worker == 9:
            raise OSError("the disk is full")

    async def stop(self, worker: int, *, force: bool) -> None:
        assert (worker, force) == (7, True)
        self.last_running = {}
        self.stopped.set()

    async def close(self) -> None:
        self.end = self.end or "closed"
        self.num_processes = 0

    async def detach(self) -> None:
        self.end = self.end or "detached"


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The engines that agents make, in order."""
    made: list[Engine] = []

    def make(*_: Any, **__: Any) -> Engine:
        made.append(Engine())
        return made[-1]

    monkeypatch.setattr(agent_module, "LocalEngine", make)
    return made


def test_the_end_of_the_lease_waits_for_no_file_and_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "_RETRY_S", 0.05)
    now = 0.0

    async def run() -> None:
        nonlocal now
        answers, reads = threading.Event(), threading.Event()

        async def lead(connection: ServerConnection) -> None:
            await welcome(connection, lease_s=60.0)
            await send(connection, await hear(connection))
            await connection.wait_closed()

        def read(directory: Path) -> AgentOrder:
            reads.set()
            answers.wait(LIMIT_S)
            return read_agent_order(directory)

        async with driver_of(tmp_path, lead):
            assert Agent(tmp_path)._clock is read_boot_clock, "also after the machine was suspended"
            agent, workers = Agent(tmp_path, clock=lambda: now), Engine()
            agent._engine = workers  # type: ignore[assignment]
            running = asyncio.create_task(agent.run())
            await until(lambda: agent._lease_s is not None and agent._outgoing is not None)
            # A file system no longer answers, and its readers fill the pool of threads.
            monkeypatch.setattr(agent_module, "read_agent_order", read)
            assert await asyncio.to_thread(reads.wait, LIMIT_S)
            for _ in range(64):
                asyncio.get_running_loop().run_in_executor(None, answers.wait, LIMIT_S)
            try:
                now = 61.0
                await asyncio.wait_for(workers.stopped.wait(), LIMIT_S / 3)
            finally:
                answers.set()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_only_an_answered_beat_renews_the_lease_of_an_agent_that_connects_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that cannot read its term welcomes agents, and answers no beat."""
    monkeypatch.setattr(agent_module, "_RETRY_S", 0.01)
    now, num_answered, num_welcomed = 0.0, 3, 0

    async def run() -> None:
        nonlocal now

        async def lead(connection: ServerConnection) -> None:
            nonlocal now, num_welcomed
            now += 20.0
            num_welcomed += 1
            await welcome(connection, lease_s=60.0)
            beat = await wait_for(connection, Beat)
            if num_welcomed <= num_answered:
                await send(connection, beat)
                await until(lambda: agent._answered_at == now)

        async with driver_of(tmp_path, lead):
            agent, workers = Agent(tmp_path, clock=lambda: now), Engine()
            agent._engine = workers  # type: ignore[assignment]
            running = asyncio.create_task(agent.run())
            await asyncio.wait_for(workers.stopped.wait(), LIMIT_S / 3)
            assert agent._answered_at == 20.0 * num_answered
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert num_welcomed > num_answered + 2, "within its lease the workers train on"


@pytest.mark.parametrize("has_room", [False, True], ids=["no room at all", "room in its own files"])
def test_an_agent_serves_a_new_driver_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    monkeypatch.setattr(agent_module, "_RETRY_S", 0.01)
    monkeypatch.setattr(agent_module, "_AFTER_FAULT_S", 0.02)
    monkeypatch.setattr(side_work, "_AFTER_FAULT_S", 0.02)
    files = JobDirectory(tmp_path)
    hellos: list[AgentHello] = []
    is_full = False

    def refuse(*_: object, **__: object) -> tuple[int, str]:
        raise OSError(errno.ENOSPC, "No space left on device")

    def read_files() -> tuple[int, str]:
        return read_state(tmp_path).term, json.loads(files.address_file.read_text())["url"]

    async def run() -> None:
        nonlocal is_full
        workers, have_served, is_over = Engine(), asyncio.Event(), asyncio.Event()

        async def lead(connection: ServerConnection) -> None:
            nonlocal is_full
            hello = await hear(connection)
            assert isinstance(hello, AgentHello)
            hellos.append(hello)
            await send(connection, AgentWelcome(term=1 + len(hellos), beat_every_s=0.02, lease_s=60.0))
            await send(connection, OpenJob(environment={}, directory=str(tmp_path)))
            await send(connection, Program(content=b"{}"))
            for _ in range(3):
                await send(connection, await wait_for(connection, Beat))
            if not is_full:
                is_full = True
                monkeypatch.setattr(tempfile, "mkstemp", refuse)
                if not has_room:
                    monkeypatch.setattr(os, "pwrite", refuse)
                return
            if len(hellos) == 3:
                have_served.set()
                await is_over.wait()
                await send(connection, AgentRefused(reason="the test is over"))

        async with driver_of(tmp_path, lead) as order:
            files.write_address(Address("ws://10.0.0.1:1/worker", "attempt of the workers"))
            agent = Agent(tmp_path)
            agent._engine, agent._rendezvous = workers, "127.0.0.1:1"  # type: ignore[assignment]
            agent._opening = asyncio.ensure_future(asyncio.sleep(0))
            running = asyncio.create_task(agent.run())
            try:
                await asyncio.wait_for(have_served.wait(), LIMIT_S / 3)
                assert [hello.term for hello in hellos] == [0, 2, 3]
                assert [hello.workers for hello in hellos] == [(7,)] * 3
                url = order.urls[0].replace("/agent", "/worker")
                assert read_files() == (4 if has_room else 2, url)
                monkeypatch.undo()  # there is room again
                await until(lambda: read_files() == (4, url))
                assert workers.last_running == {7: 4711}
            finally:
                is_over.set()
                await asyncio.wait_for(running, LIMIT_S / 3)

    asyncio.run(run())


def test_an_order_that_cannot_be_read_ends_neither_the_agent_nor_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_module, "_RETRY_S", 0.05)
    connections: list[str] = []

    async def run() -> None:
        workers = Engine()

        async def lead(connection: ServerConnection) -> None:
            connections.append(workers.end)
            await welcome(connection)
            if len(connections) == 3:
                await send(connection, AgentRefused(reason="the test is over"))
            if len(connections) > 1:
                return
            (tmp_path / "agent.json").write_bytes(b"{")
            await until(lambda: "Cannot read the agent's order" in caplog.text)

        async with driver_of(tmp_path, lead):
            agent = Agent(tmp_path)
            agent._engine = workers  # type: ignore[assignment]
            assert "the test is over" in await asyncio.wait_for(agent.run(), LIMIT_S)

    asyncio.run(run())
    assert connections == ["", "", ""]
    assert caplog.text.count("Cannot read the agent's order") == 1, "once, not in each round"


def test_an_agent_whose_engine_fails_says_so_kills_its_workers_and_ends(tmp_path: Path, engines: list[Engine]) -> None:
    refused: list[OpenRefused] = []

    async def lead(connection: ServerConnection) -> None:
        await lead_to_opened(connection, tmp_path)
        engines[0].fault.set_exception(LegatoError("Cannot start the process that starts the workers."))
        refused.append(await wait_for(connection, OpenRefused))

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            with pytest.raises(AgentFailedError):
                await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert refused == [OpenRefused(reason="its agent failed: Cannot start the process that starts the workers")]
    assert engines[0].end == "closed"


def test_an_agent_of_which_another_task_fails_says_so_and_leaves_its_workers_to_the_next_agent(
    tmp_path: Path, engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    remarks: list[Remark] = []
    failing = threading.Event()

    async def send_logs(_: LogSender) -> None:
        await until(failing.is_set)
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(LogSender, "send_forever", send_logs)

    async def lead(connection: ServerConnection) -> None:
        await lead_to_opened(connection, tmp_path)
        failing.set()
        remarks.append(await wait_for(connection, Remark))

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            with pytest.raises(AgentFailedError, match="a fault"):
                await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert [remark.text for remark in remarks] == ["its agent failed and starts again: ZeroDivisionError('a fault')"]
    assert engines[0].end == "detached"


def test_logs_are_sent_again_after_an_error_of_the_disk(
    tmp_path: Path, engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_AFTER_FAULT_S", 0.01)
    monkeypatch.setattr(side_work, "_AFTER_FAULT_S", 0.01)
    num_tries = 0

    async def send_logs(sender: LogSender) -> None:
        nonlocal num_tries
        num_tries += 1
        if num_tries < 3:
            raise OSError("a stale handle")
        await asyncio.Event().wait()

    monkeypatch.setattr(LogSender, "send_forever", send_logs)

    async def lead(connection: ServerConnection) -> None:
        await lead_to_opened(connection, tmp_path)
        await until(lambda: num_tries == 3)
        await send(connection, AgentRefused(reason="the test is over"))

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            assert "the test is over" in await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert engines[0].end == "closed"


def test_the_process_of_an_agent_serves_again_after_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_RESTART_S", 0.01)
    ends: list[str | AgentFailedError] = [AgentFailedError("It failed."), AgentFailedError("It failed."), "the end"]

    async def run(_: Agent) -> str:
        end = ends.pop(0)
        if isinstance(end, AgentFailedError):
            raise end
        return end

    write_agent_order(tmp_path, AgentOrder(job="job", node="h2", urls=("ws://x",), token="token", address="127.0.0.1"))
    monkeypatch.setattr(Agent, "run", run)
    assert process._serve(tmp_path) == "the end"


def test_a_worker_that_cannot_be_started_ends_alone_and_the_machine_stays_in_use(
    tmp_path: Path, engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[WorkerEvent] = []
    hellos: list[AgentHello] = []

    async def lead(connection: ServerConnection) -> None:
        hellos.append(await welcome(connection))
        await send(connection, OpenJob(environment={}, directory=str(tmp_path)))
        await wait_for(connection, Opened)
        if len(hellos) == 2:
            await send(connection, AgentRefused(reason="the test is over"))
            return
        for worker in (8, 9, 8):
            start = StartOne(worker=worker, slot="h2/5", program=(), environment={}, directory="/", attempt="1")
            await send(connection, start)
        for _ in range(2):
            message = await hear(connection)
            while not isinstance(message, WorkerEvent):
                assert not isinstance(message, OpenRefused), "the machine can be used"
                message = await hear(connection)
            ends.append(message)
            await send(connection, Acknowledge(number=message.number))

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            # As if the engine had adopted workers of an agent with other devices.
            monkeypatch.setattr(Engine, "devices", ("cpu", "cpu"))
            assert "the test is over" in await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert [(end.worker, end.exit_code) for end in ends] == [(8, EXIT_REFUSED), (9, EXIT_UNSTARTED)]
    assert [end.reason for end in ends] == ["Cannot use slot h2/5: this machine has 1 slots", "the disk is full"]
    assert [hello.devices for hello in hellos] == [("cpu",), ("cpu", "cpu")]
    assert engines[0].end == "closed"


def test_an_agent_waits_between_its_tries_at_a_new_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "_RETRY_S", 0.05)

    async def lead(connection: ServerConnection) -> None:
        await welcome(connection)
        await connection.wait_closed()

    async def run() -> None:
        async with driver_of(tmp_path, lead) as order:
            agent, tries = Agent(tmp_path), 0

            async def connect_again(_: AgentOrder) -> None:
                nonlocal tries
                tries += 1

            running = asyncio.create_task(agent.run())
            await until(lambda: agent._outgoing is not None)
            monkeypatch.setattr(agent, "_connect", connect_again)
            write_agent_order(tmp_path, msgspec.structs.replace(order, urls=("ws://127.0.0.1:1/agent",)))
            await until(lambda: tries == 5)  # never true if the agent tries again without a wait
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize("end", [CloseJob(), AgentRefused(reason="the test is over")])
def test_a_job_that_ends_while_its_engine_opens_leaves_no_process(
    tmp_path: Path, engines: list[Engine], monkeypatch: pytest.MonkeyPatch, end: AgentEnvelope
) -> None:
    monkeypatch.setattr(Engine, "opens", False)
    monkeypatch.setattr(agent_module, "_OPEN_LIMIT_S", 1.0)
    ends_when_closed: list[str] = []

    async def lead(connection: ServerConnection) -> None:
        await welcome(connection)
        await send(connection, OpenJob(environment={}, directory=str(tmp_path)))
        await until(lambda: bool(engines))
        await engines[0].is_opening.wait()
        await send(connection, end)
        if isinstance(end, CloseJob):
            await wait_for(connection, Closed)
            ends_when_closed.append(engines[0].end)

    async def run() -> None:
        async with driver_of(tmp_path, lead):
            await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    asyncio.run(run())
    assert (engines[0].end, engines[0].num_processes) == ("closed", 0)
    assert ends_when_closed in ([], ["closed"]), "before the agent says that no process is left"


class QuietEngine(Engine):
    """An engine whose worker has ended."""

    known_workers = ()

    async def events(self) -> AsyncIterator[EngineEvent]:
        await self.stopped.wait()
        return
        yield

    async def close(self) -> None:
        self.stopped.set()


@pytest.mark.parametrize("num_missing", [0, 1])
def test_an_agent_offers_what_workers_wrote_and_begins_again_for_the_next_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_missing: int
) -> None:
    monkeypatch.setattr(agent_module, "LocalEngine", QuietEngine)
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("the code")
    job = OpenJob(environment={}, directory=str(tmp_path / "nowhere"))
    num_connections = 0

    async def close(connection: ServerConnection) -> list[str]:
        await send(connection, CloseJob(takes_results=True))
        return [file.path for file in (await wait_for(connection, OfferFiles)).files]

    async def lead(connection: ServerConnection) -> None:
        nonlocal num_connections
        num_connections += 1
        await welcome(connection)
        await send(connection, job)
        assert (await wait_for(connection, Opened)).work == str(work)
        (work / "model.pt").write_text("weights")
        assert await close(connection) == ["model.pt"]
        if num_connections == 1:
            return  # this driver dies
        await send(connection, FilesTaken(num_missing=num_missing))
        await wait_for(connection, Closed)

    async def run() -> str:
        async with driver_of(tmp_path, lead) as order:
            write_agent_order(tmp_path, msgspec.structs.replace(order, work=str(work)))
            return await asyncio.wait_for(Agent(tmp_path).run(), LIMIT_S)

    assert asyncio.run(run()) == (agent_module.RESULTS_KEPT if num_missing else agent_module.JOB_ENDED)
    assert num_connections == 2
