"""Files of programs between agents and drivers that come and go: real connections, and no workers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from legato.agent.results import ResultFiles
from legato.core import agent_messages as messages
from legato.engines import departures, offers, result_intake
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, AgentsEngine
from legato.engines.base import Launch, Noted, StoreMoved
from legato.system.door import Door

LIMIT_S = 30.0


class Leader:
    """A driver's engine and door on the job's directory, for machines a and b."""

    def __init__(self, path: Path, *, has_earlier: bool = False, grows: bool = False) -> None:
        self.path, self.work = path, path / "work"
        path.mkdir(exist_ok=True)
        self.door = Door(paths=(PATH,))
        job = messages.OpenJob(environment={}, directory=str(path / "nowhere"), has_earlier=has_earlier)
        self.engine = AgentsEngine(
            path,
            self.door,
            [NodeSpec("a", 1), NodeSpec("b", 1)],
            job,
            log_path=lambda worker: path / "logs" / str(worker),
            results=self.work,
            beat_every_s=0.01,
            gather_limit_s=0.01,
            grows=grows,
        )
        self.notes: list[str] = []
        self.opening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.door.open()
        self.opening = asyncio.create_task(self.engine.open(1))
        await _until(lambda: PATH in self.door._mounts)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.detach()
        await self.door.close()

    async def start(self, worker: int, node: str) -> None:
        """Let a worker have run on a machine."""
        launch = Launch(worker=worker, slot=f"{node}/0", program=(), environment={}, directory="/", log_path="")
        await self.engine.start(launch)

    async def close(self) -> tuple[str, ...]:
        await self.engine.close(self.notes.append)
        return self.engine.remarks

    def contents(self) -> dict[str, str]:
        return {str(path.relative_to(self.work)): path.read_text() for path in self.work.rglob("*") if path.is_file()}


class Agent:
    """An agent with nothing but the program's files. It may lose its connection, and send what it should not."""

    def __init__(self, path: Path, node: str) -> None:
        self.node, self.root = node, path / node / "work"
        self.root.mkdir(parents=True)
        self.results = ResultFiles(path / node, path / "program.json", self.say)
        self.outgoing: asyncio.Queue[messages.AgentMessage] = asyncio.Queue()
        self.tasks: list[asyncio.Task[None]] = []
        self.connection: ClientConnection | None = None
        self.change: Callable[[messages.AgentMessage], messages.AgentMessage | None] = lambda message: message
        self.is_complete: bool | None = None
        self.told: str | None = None
        self.closing: asyncio.Task[None] | None = None

    def say(self, message: messages.AgentMessage) -> bool:
        changed = self.change(message)
        if changed is not None:
            self.outgoing.put_nowait(changed)
        return self.connection is not None

    async def join(self, leader: Leader) -> None:
        self.outgoing = asyncio.Queue()
        headers = {"Authorization": f"Bearer {leader.engine.secret}"}
        self.connection = await connect(leader.door.url(PATH), additional_headers=headers, proxy=None)
        hello = messages.AgentHello(
            node=self.node, identity=self.node, devices=("cpu",), address="127.0.0.1", sends_results=True
        )
        await self.connection.send(messages.encode_agent_frame(hello))
        self.results.connect_again()
        self.tasks += [asyncio.create_task(part) for part in (self.talk(self.connection), self.listen(self.connection))]
        if self.closing is None:
            self.say(messages.Opened(rendezvous=f"{self.node}:1", workers=(0, 1), work=str(self.root)))
            await _until(lambda: leader.engine._nodes[self.node].is_open)

    async def prepare(self) -> None:
        self.told = await self.results.prepare(self.root, None, has_earlier=True)

    async def talk(self, connection: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await connection.send(messages.encode_agent_frame(await self.outgoing.get()))

    async def listen(self, connection: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for frame in connection:
                assert isinstance(frame, bytes)
                match messages.decode_agent_request(frame):
                    case messages.CloseJob(takes_results=takes) if self.closing is None:
                        self.closing = asyncio.create_task(self.close(takes=takes))
                    case messages.CloseJob():
                        self.results.offer_again()
                    case messages.OfferFiles() as offer:
                        self.results.fetcher.note_offer(offer)
                    case messages.FilePiece() as piece:
                        await self.results.fetcher.take(piece)
                    case messages.FetchFile() as request:
                        self.results.send(request)
                    case messages.FileTaken() as taken:
                        self.results.note_taken(taken)
                    case messages.FilesTaken() as taken:
                        self.results.note_end(taken)

    async def close(self, *, takes: bool) -> None:
        self.is_complete = not takes or await self.results.hand_over()
        self.say(messages.Closed())

    def lose(self) -> None:
        """Lose the connection."""
        assert self.connection is not None
        self.connection.transport.abort()
        self.connection = None

    async def end(self) -> None:
        self.results.stop()
        tasks = [*self.tasks, *([] if self.closing is None else [self.closing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- files change without an event
        await asyncio.sleep(0.001)


def run(tmp_path: Path, test: Callable[[Leader, Agent, Agent], Awaitable[None]]) -> None:
    """Run a test with a driver and two machines; workers 0 and 1 have run on them, and rank 0 on a."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            a, b = Agent(tmp_path, "a"), Agent(tmp_path, "b")
            for agent in (a, b):
                await agent.results.prepare(agent.root, None, has_earlier=False)
            async with Leader(tmp_path / "job") as leader:
                await a.join(leader)
                await b.join(leader)
                assert leader.opening is not None
                await leader.opening
                await leader.start(0, "a")
                await leader.start(1, "b")
                leader.engine.note_rank_0("a/0")
                try:
                    await test(leader, a, b)
                finally:
                    await a.end()
                    await b.end()

    asyncio.run(limited())


def test_the_machine_of_rank_0_wins_and_files_of_others_are_added_and_named(tmp_path: Path) -> None:
    async def test(leader: Leader, a: Agent, b: Agent) -> None:
        (a.root / "out").mkdir()
        (a.root / "out" / "model.pt").write_text("of a")
        (b.root / "out").mkdir()
        (b.root / "out" / "model.pt").write_text("of b")
        (b.root / "only-b.txt").write_text("b")
        remarks = await leader.close()
        assert leader.contents() == {"out/model.pt": "of a", "only-b.txt": "b"}
        (remark,) = remarks
        assert remark.startswith(
            "1 file of b did not come, because the job has other versions from the machine of rank"
        )
        assert (a.is_complete, b.is_complete) == (True, True), "both may delete their files"
        assert any("brought 1 file that the program wrote on a into" in note for note in leader.notes)

    run(tmp_path, test)


def test_a_machine_on_which_rank_0_was_before_keeps_its_version_beside_the_last_one(tmp_path: Path) -> None:
    async def test(leader: Leader, a: Agent, b: Agent) -> None:
        (a.root / "metrics.csv").write_text("1")
        (b.root / "metrics.csv").write_text("2")
        leader.engine.note_rank_0("b/0")
        remarks = await leader.close()
        assert leader.contents() == {"metrics.csv": "2", "metrics.csv.from-a": "1"}
        assert any("metrics.csv.from-a" in told and "Both are kept" in told for told in remarks)

    run(tmp_path, test)


def test_all_versions_of_a_program_without_ranks_are_kept(tmp_path: Path) -> None:
    async def test(leader: Leader, a: Agent, b: Agent) -> None:
        leader.engine._record.rank_0 = ""
        (a.root / "out.txt").write_text("of a")
        (b.root / "out.txt").write_text("of b")
        await leader.close()
        assert leader.contents() == {"out.txt": "of a", "out.txt.from-b": "of b"}

    run(tmp_path, test)


def test_a_version_that_someone_made_here_meanwhile_is_kept(tmp_path: Path) -> None:
    async def test(leader: Leader, a: Agent, _b: Agent) -> None:
        (a.root / "metrics.csv").write_text("of the machine")
        leader.work.mkdir()
        (leader.work / "metrics.csv").write_text("of another program")
        await leader.close()
        assert leader.contents() == {"metrics.csv": "of the machine", "metrics.csv.before-a": "of another program"}

    run(tmp_path, test)


def test_a_connection_that_is_lost_before_the_list_or_in_a_file_costs_nothing(tmp_path: Path) -> None:
    async def test(leader: Leader, a: Agent, _b: Agent) -> None:
        content = "x" * 2**21
        (a.root / "model.pt").write_text(content)
        lost: list[type[messages.AgentEnvelope]] = []

        def lose(message: messages.AgentMessage) -> messages.AgentMessage | None:
            is_part = isinstance(message, messages.OfferFiles | messages.FilePiece)
            if is_part and type(message) not in lost and getattr(message, "offset", 1):
                lost.append(type(message))
                a.lose()
                back.append(asyncio.create_task(a.join(leader)))
                return None
            return message

        back: list[asyncio.Task[None]] = []
        a.change = lose
        assert await leader.close() == ()
        assert leader.contents() == {"model.pt": content}
        assert lost == [messages.OfferFiles, messages.FilePiece]
        await asyncio.gather(*back)

    run(tmp_path, test)


def test_files_that_do_not_come_are_named_with_their_place_and_stay_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "_AWAY_LIMIT_S", 0.05)

    async def test(leader: Leader, a: Agent, b: Agent) -> None:
        (b.root / "link").symlink_to("/etc/passwd")
        (b.root / "two\nlines").write_text("x")
        (b.root / "fine.txt").write_text("fine")
        a.lose()
        await _until(lambda: leader.engine._nodes["a"].connection is None)
        remarks = await leader.close()
        assert leader.contents() == {"fine.txt": "fine"}
        of_a, of_b, of_links = remarks
        assert f"wrote on a did not come, because the machine is lost. They stay on a in {a.root}" in of_a
        reason = "its name has characters that cannot be shown"
        assert f"('two\\nlines': {reason}). They stay on b in {b.root}: copy them from there" in of_b
        assert of_links.endswith("the program made 1 links or other special files on b, such as link")
        assert b.is_complete is False

    run(tmp_path, test)


def test_a_job_that_must_end_now_waits_for_no_files(tmp_path: Path) -> None:
    async def test(leader: Leader, a: Agent, b: Agent) -> None:
        (a.root / "model.pt").write_text("x")
        a.change = lambda message: None if isinstance(message, messages.FilePiece) else message
        closing = asyncio.create_task(leader.close())
        await _until(lambda: leader.engine._nodes["a"].results.fetcher.has_list)
        leader.engine.abandon_results()
        assert [told.partition(". They")[0] for told in await closing] == [
            f"files that the program wrote on {node} did not come, because the job must end now" for node in ("a", "b")
        ]
        assert (a.is_complete, b.is_complete) == (False, False), "the agents keep them"

    run(tmp_path, test)


@pytest.mark.parametrize("path", ["../evil", "/tmp/evil-of-legato", "out/../../../evil"])
def test_a_hostile_agent_writes_nothing_outside_of_the_folder(tmp_path: Path, path: str) -> None:
    async def test(leader: Leader, a: Agent, _b: Agent) -> None:
        (a.root / "model.pt").write_text("x")

        def lie(message: messages.AgentMessage) -> messages.AgentMessage:
            if isinstance(message, messages.OfferFiles):
                lies = tuple(messages.OfferedFile(path, f.num_bytes, f.sha256) for f in message.files)
                return messages.OfferFiles(files=lies, is_first=True, is_last=True)
            return message

        a.change = lie
        (told,) = await leader.close()
        assert f"({path}: it is not below the working directory)" in told
        assert not leader.work.exists()

    run(tmp_path, test)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b", "job"]


def test_a_machine_of_the_next_attempt_gets_the_files_and_hands_back_only_what_changed(tmp_path: Path) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S), Leader(tmp_path / "job", has_earlier=True) as leader:
            (leader.work / "out").mkdir(parents=True)
            for name in ("metrics.csv", "out/model.pt", "train.py"):
                (leader.work / name).write_text(f"first {name}")
            a = Agent(tmp_path, "a")
            (a.root / "train.py").write_text("first train.py")
            asked: list[str] = []
            a.change = lambda message: asked.append(type(message).__name__) or message
            await a.join(leader)
            await a.prepare()
            assert a.told is None
            assert (a.root / "metrics.csv").read_text() == "first metrics.csv"
            assert asked.count("FetchFile") == 2, "it has the code already"
            await leader.start(0, "a")
            leader.engine.note_rank_0("a/0")
            with (a.root / "metrics.csv").open("a") as file:
                file.write(", and more")
            assert await leader.close() == ()
            assert leader.contents()["metrics.csv"] == "first metrics.csv, and more"
            assert len(leader.contents()) == 3
            assert asked.count("FilePiece") == 1
            await a.end()

    asyncio.run(limited())


def test_a_machine_begins_without_earlier_files_that_do_not_come_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_intake, "MAX_EARLIER_BYTES", 10)

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S), Leader(tmp_path / "job", has_earlier=True) as leader:
            leader.work.mkdir()
            (leader.work / "large").write_text("x" * 11)
            (leader.work / "small").write_text("x")
            a = Agent(tmp_path, "a")
            await a.join(leader)
            await a.prepare()
            assert a.told is not None and "large: it has 11 bytes" in a.told and "stay as they are" in a.told
            assert [path.name for path in a.root.iterdir()] == ["small"]
            await leader.start(0, "a")
            leader.engine.note_rank_0("a/0")
            (a.root / "large").write_text("new")
            await leader.close()
            assert leader.contents() == {"small": "x", "large": "new", "large.before-a": "x" * 11}
            await a.end()

    asyncio.run(limited())


def test_a_job_leaves_a_machine_that_it_does_not_use_takes_its_files_along_and_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "IDLE_LIMIT_S", 0.05)

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S), Leader(tmp_path / "job", grows=True) as leader:
            a, b = Agent(tmp_path, "a"), Agent(tmp_path, "b")
            events: list[object] = []

            async def receive() -> None:
                events.extend([event async for event in leader.engine.events()])

            receiving = asyncio.create_task(receive())
            for agent in (a, b):
                await agent.results.prepare(agent.root, None, has_earlier=False)
                await agent.join(leader)
            assert leader.opening is not None
            await leader.opening
            assert await leader.engine.rendezvous() == "a:1"
            leader.engine.note_slots(["a/0", "b/0"])
            await leader.start(0, "a")
            leader.engine.note_rank_0("a/0")
            (a.root / "metrics.csv").write_text("1")
            leader.engine.note_rank_0("b/0")
            await leader.start(1, "b")
            leader.engine.note_slots(["b/0"])
            a.say(messages.WorkerEvent(number=1, worker=0, exit_code=0))
            await _until(lambda: a.closing is not None and a.closing.done())
            await _until(lambda: "a" not in leader.engine._nodes)
            assert a.is_complete, "its agent has ended, and its files are here"
            assert leader.contents() == {"metrics.csv": "1"}
            await a.end()

            # The driver names its slot again: another agent there gets the files.
            starting = asyncio.create_task(leader.start(2, "a"))
            await _until(lambda: "a" in leader.engine._nodes)
            back = Agent(tmp_path / "again", "a")
            await back.join(leader)
            await back.prepare()
            await starting
            assert (back.root / "metrics.csv").read_text() == "1"
            assert leader.engine._job.has_earlier
            await leader.engine.detach()
            await receiving
            assert StoreMoved("b:1", "the job leaves its machine") in events
            await back.end()
            await b.end()

    asyncio.run(limited())


def test_the_only_machine_of_a_job_and_one_with_a_wanted_slot_are_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "IDLE_LIMIT_S", 0.0)

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S), Leader(tmp_path / "job", grows=True) as leader:
            a = Agent(tmp_path, "a")
            await a.join(leader)
            assert leader.opening is not None
            await leader.opening
            await leader.engine.rendezvous()
            find, nodes = leader.engine._departures.find_idle, leader.engine._nodes.values()
            a_node = leader.engine._nodes["a"]
            assert find(nodes, None, 1.0) == [], "the driver has not said yet which slots it wants"
            leader.engine.note_slots(["a/0"])
            assert find(nodes, None, 1.0) == []
            leader.engine.note_slots([])
            a_node.record.workers[0] = 1
            assert find(nodes, None, 1.0) == [], "a worker runs there"
            a_node.record.workers.clear()
            assert find(nodes, a_node, 1.0) == [], "no other machine can have the store"
            assert find(nodes, None, 1.0) == [a_node]
            await a.end()

    asyncio.run(limited())


def test_an_agent_of_an_earlier_release_sends_nothing_and_is_named(tmp_path: Path) -> None:
    async def test(leader: Leader, _a: Agent, b: Agent) -> None:
        node = leader.engine._nodes["b"]
        node.sends_results, node.shares_checkpoints, node.record.work = False, False, ""
        (told,) = await leader.close()
        assert told.startswith(
            "files that the program wrote on b are deleted, because its agent is of an earlier release"
        )
        assert b.is_complete, "it was not asked for files"

    run(tmp_path, test)


def test_a_driver_that_offers_nothing_does_not_keep_workers_from_starting(tmp_path: Path) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            a = Agent(tmp_path, "a")
            a.results.fetcher = offers.FileFetcher(tmp_path / "in", lambda _message: None, stall_limit_s=0.02)
            await a.prepare()
            assert a.told is not None and "nothing has come for 0.02 s" in a.told

    asyncio.run(limited())


def test_two_machines_that_a_job_leaves_at_once_send_equal_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "IDLE_LIMIT_S", 0.05)

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S), Leader(tmp_path / "job", grows=True) as leader:
            agents = [Agent(tmp_path, node) for node in ("a", "b", "c")]
            for agent in agents:
                await agent.results.prepare(agent.root, None, has_earlier=False)
                (agent.root / f"{agent.node}.txt").write_text("equal" * 2**16)
            opening = [asyncio.create_task(leader.start(worker, "abc"[worker])) for worker in range(3)]
            for agent in agents:
                await agent.join(leader)
            await asyncio.gather(*opening)
            leader.engine.note_slots(["c/0"])
            for worker, agent in enumerate(agents[:2]):
                agent.say(messages.WorkerEvent(number=1, worker=worker, exit_code=0))
            receiving = asyncio.create_task(_receive(leader.engine))
            await _until(lambda: set(leader.engine._nodes) == {"c"})
            assert leader.contents() == dict.fromkeys(("a.txt", "b.txt"), "equal" * 2**16)
            assert [agent.is_complete for agent in agents[:2]] == [True, True]
            await leader.engine.detach()
            assert not [event for event in await receiving if isinstance(event, Noted) and event.is_warning]
            for agent in agents:
                await agent.end()

    asyncio.run(limited())


def test_what_comes_from_a_machine_is_kept_when_another_one_is_done(tmp_path: Path) -> None:
    async def limited() -> None:
        folder = result_intake.ResultFolder(tmp_path / "work", tmp_path / "incoming")
        asked: list[object] = []

        def ask(message: object) -> bool:
            asked.append(message)
            return True

        done, coming = (result_intake.ResultIntake(node, folder, ask) for node in "ab")
        sha256 = hashlib.sha256(b"content").hexdigest()
        file = messages.OfferedFile("a.txt", 7, sha256)
        fetching = asyncio.ensure_future(anext(coming.fetcher.fetch_all([file], is_urgent=True)))
        await asyncio.sleep(0)
        for offset, data, known in ((0, b"con", ""), (3, b"tent", sha256)):
            piece = messages.FilePiece(name=sha256, offset=offset, data=data, num_bytes=7, sha256=known)
            await coming.fetcher.take(piece)
            done.fetcher.clear()
        assert [type(each) for each in asked] == [messages.FetchFile, messages.FileTaken, messages.FileTaken]
        _, path, _ = await fetching
        assert path is not None and path.read_bytes() == b"content"

    asyncio.run(limited())


async def _receive(engine: AgentsEngine) -> list[object]:
    return [event async for event in engine.events()]
