"""Checkpoints between an agent and drivers that come and go: real connections, and no workers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from legato.agent.checkpoints import CheckpointRelay
from legato.core import agent_messages as messages
from legato.core.checkpoint_requests import HERE, WANTED
from legato.core.errors import LegatoError
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, AgentsEngine
from legato.engines.base import Exited, Launch
from legato.engines.file_pieces import PieceReceiver
from legato.engines.incoming import Incoming, NewerCheckpoint
from legato.system.door import Door

LIMIT_S = 30.0
WORKER = 7
WINDOW = 4 * 2**20


async def until(condition: Callable[[], bool], _what: str = "") -> None:
    while not condition():  # noqa: ASYNC110 -- files change without an event
        await asyncio.sleep(0.001)


def read(path: str | Path) -> bytes:
    return Path(path).read_bytes()


def name_of(step: int) -> str:
    return f"step-{step:08d}.legato"


class Leader:
    """A driver's engine and door on the job's directory; another one may follow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        path.mkdir(exist_ok=True)
        self.door = Door(paths=(PATH,))
        job = messages.OpenJob(environment={}, directory=str(path))
        self.engine = AgentsEngine(
            path,
            self.door,
            [NodeSpec("a", 1)],
            job,
            log_path=lambda worker: path / "logs" / str(worker),
            checkpoints=self.checkpoints,
            keep=2,
            beat_every_s=0.01,
        )
        self.opening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.door.open()
        self.opening = asyncio.create_task(self.engine.open(1))
        await until(lambda: PATH in self.door._mounts)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.detach()
        await self.door.close()

    def partial(self, step: int) -> int:
        with contextlib.suppress(FileNotFoundError):
            return (self.checkpoints / f".{name_of(step)}.a.part").stat().st_size
        return 0


class Agent:
    """An agent with nothing but checkpoints. It counts what it sends, and can lose its connection after some bytes."""

    def __init__(self, folder: Path, *, limit: int | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.limit = folder, limit
        self.relay = CheckpointRelay(folder, self.say)
        self.outgoing: asyncio.Queue[messages.AgentMessage] = asyncio.Queue()
        self.num_sent = self.num_received = 0
        self.lost = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.connection: ClientConnection | None = None
        self.newest = ""

    def say(self, message: messages.AgentMessage) -> bool:
        if isinstance(message, messages.FilePiece):
            self.num_sent += len(message.data)
            if self.limit is not None and self.num_sent > self.limit:
                self.lost.set()
        if self.lost.is_set():
            return False
        self.outgoing.put_nowait(message)
        return True

    async def join(self, leader: Leader) -> None:
        self.lost.clear()
        self.outgoing = asyncio.Queue()
        self.relay.begin_again()
        headers = {"Authorization": f"Bearer {leader.engine.secret}"}
        self.connection = await connect(leader.door.url(PATH), additional_headers=headers, proxy=None)
        hello = messages.AgentHello(node="a", identity="a", devices=("cpu",), address="127.0.0.1")
        opened = messages.Opened(rendezvous="a:1", workers=(WORKER,), shares_checkpoints=False, newest=self.newest)
        for message in (hello, opened):
            await self.connection.send(messages.encode_agent_frame(message))
        self.tasks = [asyncio.create_task(part) for part in (self.talk(), self.listen(), self.relay.watch_forever())]
        assert leader.opening is not None
        await leader.opening

    async def talk(self) -> None:
        assert self.connection is not None
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.connection.send(messages.encode_agent_frame(await self.outgoing.get()))

    async def listen(self) -> None:
        assert self.connection is not None
        with contextlib.suppress(ConnectionClosed):
            async for frame in self.connection:
                assert isinstance(frame, bytes)
                match messages.decode_agent_request(frame):
                    case messages.SendCheckpoint() as request:
                        self.relay.send(request)
                    case messages.HastenCheckpoint(name=name):
                        self.relay.hasten(name)
                    case messages.FileTaken() as taken:
                        self.relay.note_taken(taken)
                    case messages.FilePiece() as piece:
                        self.num_received += len(piece.data)
                        await self.relay.take(piece)
                    case messages.NoCheckpoint(error=error):
                        await self.relay.answer(error or None)

    async def leave(self) -> None:
        assert self.connection is not None
        self.connection.transport.abort()
        self.relay.begin_again()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def save(self, step: int, num_bytes: int = 2**20 + 3) -> bytes:
        content = os.urandom(num_bytes)
        (self.folder / name_of(step)).write_bytes(content)
        return content


async def start_worker(leader: Leader) -> None:
    launch = Launch(worker=WORKER, slot="a/0", program=(), environment={}, directory="/", log_path="")
    await leader.engine.start(launch)
    assert leader.engine.is_away(WORKER)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(limited())


@pytest.mark.parametrize("who", ["connection", "agent", "driver"])
def test_a_broken_upload_goes_on_where_it_ended(tmp_path: Path, who: str) -> None:
    """Whatever started again: the file is the same, and no more was sent twice than was on the way."""

    async def test() -> None:
        agent = Agent(tmp_path / "a", limit=12 * 2**20)
        content = agent.save(10, 20 * 2**20 + 5)
        async with contextlib.AsyncExitStack() as stack:
            leader = await stack.enter_async_context(Leader(tmp_path / "job"))
            await agent.join(leader)
            await start_worker(leader)
            bringing = asyncio.create_task(leader.engine.bring(WORKER, str(agent.folder / name_of(10))))
            leader.engine.hasten(WORKER)
            await agent.lost.wait()
            (agent.folder / name_of(10)).unlink()  # its writer keeps only newer ones
            await agent.leave()
            assert not bringing.done() and not (leader.checkpoints / name_of(10)).exists()
            sent, agent.limit = agent.num_sent, None
            if who == "agent":
                agent = Agent(agent.folder)
                agent.num_sent = sent
            if who == "driver":
                bringing.cancel()
                await stack.aclose()
                leader = await stack.enter_async_context(Leader(tmp_path / "job"))
                agent.connection = None
                await agent.join(leader)
                # The worker says again what it has saved.
                bringing = asyncio.create_task(leader.engine.bring(WORKER, str(agent.folder / name_of(10))))
            else:
                await agent.join(leader)
            leader.engine.hasten(WORKER)
            path = Path(await bringing)
            assert path == leader.checkpoints / name_of(10) and read(path) == content
            assert len(content) <= agent.num_sent <= len(content) + WINDOW
            await until(lambda: list(agent.folder.iterdir()) == [], "nothing is held back")
            await agent.leave()

    run(test)


def test_a_worker_that_says_again_what_it_has_saved_causes_no_transfer(tmp_path: Path) -> None:
    async def test() -> None:
        agent = Agent(tmp_path / "a")
        content = agent.save(10)
        async with Leader(tmp_path / "job") as leader:
            await agent.join(leader)
            await start_worker(leader)
            for _ in range(2):
                path = await leader.engine.bring(WORKER, str(agent.folder / name_of(10)))
            assert read(path) == content
            assert agent.num_sent == len(content)
            # Another file of this name, such as of a job that began again, is noticed.
            content = agent.save(10)
            path = await leader.engine.bring(WORKER, str(agent.folder / name_of(10)))
            assert read(path) == content
            await agent.leave()

    run(test)


def test_two_machines_bring_a_checkpoint_of_the_same_name_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        machines: dict[str, Incoming] = {}
        receiver = PieceReceiver(tmp_path)

        def list_coming() -> set[str]:
            return {name for incoming in machines.values() for name in incoming.names}

        for node in ("a", "b.part"):
            machines[node] = Incoming(node, receiver.of(node), 2, lambda _request: None, list_coming, time.monotonic)
        contents = {node: os.urandom(3000) for node in machines}
        arrivals = {node: incoming.add(name_of(10)) for node, incoming in machines.items()}
        for at in range(0, 3000, 1000):
            for node, content in contents.items():
                sha256 = hashlib.sha256(content).hexdigest() if at == 2000 else ""
                data = content[at : at + 1000]
                piece = messages.FilePiece(name=name_of(10), offset=at, data=data, num_bytes=3000, sha256=sha256)
                await machines[node].take(piece)
                if arrivals[node].done():
                    assert read(await arrivals[node]) == content
        assert all(arrival.done() for arrival in arrivals.values())
        assert os.listdir(tmp_path) == [name_of(10)]

    run(test)


def test_a_checkpoint_of_a_worker_that_has_ended_comes_from_its_machine_too(tmp_path: Path) -> None:
    """The end of a worker and its last words come over different connections."""

    async def test() -> None:
        agent = Agent(tmp_path / "a")
        content = agent.save(10)
        async with Leader(tmp_path / "job") as leader:
            await agent.join(leader)
            await start_worker(leader)
            events = leader.engine.events()
            await anext(events)
            agent.say(messages.WorkerEvent(number=1, worker=WORKER, exit_code=0))
            assert await anext(events) == Exited(WORKER, 0)
            following = asyncio.create_task(anext(events))
            await until(lambda: leader.engine.last_running == {} and not leader.engine._nodes["a"].record.workers)
            assert leader.engine.is_away(WORKER)
            path = await leader.engine.bring(WORKER, str(agent.folder / name_of(10)))
            assert path == str(leader.checkpoints / name_of(10)) and read(path) == content
            following.cancel()
            await agent.leave()

    run(test)


def test_on_a_slow_network_the_newest_checkpoint_follows_the_present_one(tmp_path: Path) -> None:
    async def test() -> None:
        agent = Agent(tmp_path / "a")
        contents = {step: agent.save(step) for step in (10, 20, 30, 40)}
        async with Leader(tmp_path / "job") as leader:
            await agent.join(leader)
            await start_worker(leader)
            tasks = [
                asyncio.create_task(leader.engine.bring(WORKER, str(agent.folder / name_of(step)))) for step in contents
            ]
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(each, NewerCheckpoint) for each in found] == [False, True, True, False]
            assert agent.num_sent == len(contents[10]) + len(contents[40])
            here = {path.name for path in leader.checkpoints.iterdir() if not path.name.startswith(".legato-")}
            assert here == {name_of(10), name_of(40)}
            await agent.leave()

    run(test)


def test_a_full_disk_and_a_file_that_is_gone_fail_one_checkpoint_and_not_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        agent = Agent(tmp_path / "a")
        agent.save(10)
        content = agent.save(30)
        async with Leader(tmp_path / "job") as leader:
            await agent.join(leader)
            await start_worker(leader)
            real = os.pwrite

            def fail(*_: Any) -> int:
                raise OSError(errno.ENOSPC, "No space left on device")

            monkeypatch.setattr(os, "pwrite", fail)
            with pytest.raises(LegatoError, match=r"it cannot be kept: .*No space left on device"):
                await leader.engine.bring(WORKER, str(agent.folder / name_of(10)))
            assert leader.partial(10) == 0, "its part takes no space"
            monkeypatch.setattr(os, "pwrite", real)
            with pytest.raises(LegatoError, match="the machine a does not have it any more"):
                await leader.engine.bring(WORKER, str(agent.folder / name_of(20)))
            path = await leader.engine.bring(WORKER, str(agent.folder / name_of(30)))
            assert read(path) == content
            await agent.leave()

    run(test)


def test_a_damaged_upload_is_tried_again_and_then_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        agent = Agent(tmp_path / "a")
        content = agent.save(10)
        num_bad = 0

        def damage(say: Callable[[messages.AgentMessage], bool], message: messages.AgentMessage) -> bool:
            nonlocal num_bad
            if isinstance(message, messages.FilePiece) and not message.offset and num_bad:
                num_bad -= 1
                message = messages.FilePiece(
                    name=message.name, offset=0, data=bytes(len(message.data)), num_bytes=message.num_bytes
                )
            return say(message)

        agent.relay = CheckpointRelay(agent.folder, lambda message: damage(agent.say, message))
        async with Leader(tmp_path / "job") as leader:
            await agent.join(leader)
            await start_worker(leader)
            num_bad = 2
            path = await leader.engine.bring(WORKER, str(agent.folder / name_of(10)))
            assert read(path) == content and num_bad == 0
            num_bad = 3
            agent.save(20)
            with pytest.raises(LegatoError, match=r"it does not come from a: .*SHA-256"):
                await leader.engine.bring(WORKER, str(agent.folder / name_of(20)))
            await agent.leave()

    run(test)


def test_an_agent_that_sends_files_without_a_request_writes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        agent = Agent(tmp_path / "a")
        async with Leader(tmp_path / "job") as leader:
            await agent.join(leader)
            await start_worker(leader)
            for name in (name_of(10), "../../evil", "step-1.legato/../x"):
                agent.say(messages.FilePiece(name=name, offset=0, data=b"x", num_bytes=1))
            agent.say(messages.Beat(sent_s=1.0))
            content = agent.save(20)
            path = await leader.engine.bring(WORKER, str(agent.folder / name_of(20)))
            assert read(path) == content
            assert {path.name for path in leader.checkpoints.iterdir() if path.name[0] != "."} == {name_of(20)}
            await agent.leave()

    run(test)


async def want(folder: Path) -> None:
    """Wait as a worker does that resumes."""
    (folder / f"{WANTED}1").touch()
    await until((folder / f"{HERE}1").exists)
    # Another worker has another number. Here, the agent would take its request for the answered one.
    await until(lambda: not (folder / f"{WANTED}1").exists())
    assert b"null" in (folder / f"{HERE}1").read_bytes(), (folder / f"{HERE}1").read_text()
    (folder / f"{HERE}1").unlink()


def test_a_resume_fetches_what_the_machine_does_not_have(tmp_path: Path) -> None:
    async def test() -> None:
        content = os.urandom(3 * 2**20)
        async with Leader(tmp_path / "job") as leader:
            agent = Agent(tmp_path / "a")
            await agent.join(leader)
            await want(agent.folder)
            assert agent.num_received == 0, "the job has none yet"
            (leader.checkpoints / name_of(10)).write_bytes(content)
            # A part of it came before the agent was started again; another part is of no use any more.
            (agent.folder / f".{name_of(10)}.part").write_bytes(content[: 2 * 2**20])
            (agent.folder / f".{name_of(5)}.part").write_bytes(content)
            await want(agent.folder)
            assert (agent.folder / name_of(10)).read_bytes() == content
            assert agent.num_received == 2**20
            assert [path.name for path in agent.folder.iterdir()] == [name_of(10)]
            # The machine that saved it has it.
            await want(agent.folder)
            assert agent.num_received == 2**20
            # What is there has other content.
            (agent.folder / name_of(10)).write_bytes(content[::-1])
            await want(agent.folder)
            assert (agent.folder / name_of(10)).read_bytes() == content
            await agent.leave()

    run(test)


def test_a_start_waits_for_a_checkpoint_that_workers_saved_without_a_driver(tmp_path: Path) -> None:
    async def test() -> None:
        agent = Agent(tmp_path / "agent")
        content = agent.save(9, 3 * WINDOW)
        async with Leader(tmp_path / "job") as leader:
            leader.checkpoints.mkdir(exist_ok=True)
            (leader.checkpoints / name_of(5)).write_bytes(b"older")
            agent.newest = name_of(9)
            await agent.join(leader)
            waits = [asyncio.create_task(leader.engine.recover()) for _ in range(2)]
            for done in asyncio.as_completed(waits):
                await done
                assert read(leader.checkpoints / name_of(9)) == content, "it is here before any worker starts"
            await leader.engine.recover()
            await agent.leave()

    run(test)


@pytest.mark.parametrize("newest", [name_of(5), name_of(4), "../step-9.legato", "step-00000099.legato"])
def test_a_start_does_not_wait_for_an_old_checkpoint_or_one_that_cannot_come(tmp_path: Path, newest: str) -> None:
    async def test() -> None:
        agent = Agent(tmp_path / "agent")
        async with Leader(tmp_path / "job") as leader:
            leader.checkpoints.mkdir(exist_ok=True)
            (leader.checkpoints / name_of(5)).write_bytes(b"known")
            agent.newest = newest
            await agent.join(leader)
            await leader.engine.recover()
            assert [path.name for path in leader.checkpoints.glob("step-*")] == [name_of(5)]
            await agent.leave()
            remarks = list(leader.engine._events.take_remarks())
        is_missing = newest == name_of(99)
        assert bool(remarks) == is_missing
        assert all("which a has: the machine a does not have it any more" in told for told in remarks)

    run(test)
