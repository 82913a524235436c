"""One suite over all engines: what a driver may rely on.

Start, list, drain, kill, crash, hang, adopt, fence: each has a test by that name, run with every kind of engine. A new
engine joins by a `Kind` of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.tiers import first_now

from legato.agent.orders import AgentOrder
from legato.agent.process import start_agent
from legato.core.agent_messages import OpenJob
from legato.core.errors import LegatoError, UsageError
from legato.core.system_metrics import WorkerMetrics
from legato.engines import local
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, AgentsEngine
from legato.engines.base import Engine, EngineEvent, Exited, Launch, NodeBack, Started, StoreMoved
from legato.engines.fake import FakeEngine, FakeMachine
from legato.engines.local import LocalEngine
from legato.system.door import Door

ENTRY = "tests.contract.tiny_worker:main"
DEADLINE_S = 30.0


class Detachable(Engine, Protocol):
    async def detach(self) -> None: ...


class EngineWithAgent(AgentsEngine):
    """An engine of agents with one real agent, on this machine. Its directory on "the other machine" is ``agent``."""

    def __init__(self, directory: Path, term: int) -> None:
        self.agent = directory / "agent"
        self.home = directory
        self.door = Door(paths=(PATH,))
        job = OpenJob(environment={}, directory=str(directory), entry=ENTRY, preload=())
        super().__init__(
            directory,
            self.door,
            [NodeSpec("n", 2)],
            job,
            log_path=lambda worker: directory / "logs" / f"worker-{worker}.log",
            starter=self,
        )
        self.given_term = term

    async def open(self, term: int = 0) -> None:
        await self.door.open()
        await super().open(term or self.given_term)

    async def keep(self, node: str, secret: str, _refuse: Callable[[str], None]) -> None:
        urls = (self.door.url(PATH),)
        start_agent(self.agent, AgentOrder(job="job", node=node, urls=urls, token=secret, address="127.0.0.1"))

    async def events(self) -> AsyncIterator[EngineEvent]:
        # Only an engine over several machines reports that a machine can be used.
        async for event in super().events():
            if not isinstance(event, NodeBack):
                yield event

    async def close(self) -> None:
        await super().close()
        await self.door.close()

    async def detach(self) -> None:
        await super().detach()
        await self.door.close()


class Kind:
    """Makes engines that all belong to one job."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.machine: FakeMachine | None = None
        self.num_engines = 0

    def make(self, **options: Any) -> Detachable:
        if self.name == "fake":
            self.machine = self.machine or FakeMachine(_behave)
            return FakeEngine(self.machine)
        options.setdefault("preload", ())
        if self.name == "agents":
            self.num_engines += 1
            return EngineWithAgent(self.directory, self.num_engines)
        start = "fresh" if self.name == "fresh" else "fork"
        return LocalEngine(self.directory, start=start, entry=ENTRY, **options)

    def launch(self, worker: int, *program: str, slot: str = "n/0") -> Launch:
        return Launch(
            worker=worker,
            slot=slot,
            program=program,
            environment={"COLOUR": "red"},
            directory=str(self.directory),
            log_path=str(self.directory / "logs" / f"worker-{worker}.log"),
        )

    @property
    def record(self) -> Path:
        """The record of the warm parent."""
        return self.directory / ("agent/engine.json" if self.name == "agents" else "engine.json")

    def log(self, worker: int) -> str:
        return (self.directory / "logs" / f"worker-{worker}.log").read_text()


async def _behave(launch: Launch) -> int:
    match launch.program:
        case ["exit", code]:
            return int(code)
        case ["kill", number]:
            return -int(number)
        case ["drain", path]:
            await asyncio.to_thread(Path(path).write_text, "ready")
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                return 7
        case ["stubborn", path]:
            await asyncio.to_thread(Path(path).write_text, "ready")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
    await asyncio.sleep(600)
    return 0


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert not local._detached, "warm parents for which no process will ever wait"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{here / 'src'}{os.pathsep}{here}")


@pytest.fixture(params=["fake", *first_now(["fork", "fresh"]), "agents"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, root: None) -> Kind:
    return Kind(request.param, tmp_path)


@pytest.fixture(params=first_now(["fork", "fresh"]))
def real(request: pytest.FixtureRequest, tmp_path: Path, root: None) -> Kind:
    return Kind(request.param, tmp_path)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test()

    asyncio.run(limited())


async def take(events: AsyncIterator[EngineEvent], num: int) -> list[EngineEvent]:
    return [await anext(events) for _ in range(num)]


async def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    return state_of(pid) not in "ZX"


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def processes_of(directory: Path) -> list[str]:
    found = subprocess.run(["ps", "-eo", "pid,stat,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(directory) in line]


def test_every_verb_is_tested_with_every_kind() -> None:
    tests = {name: test for name, test in globals().items() if name.startswith("test_") and callable(test)}
    for verb in ("start", "list", "drain", "kill", "crash", "hang", "adopt", "fence"):
        named = [test for name, test in tests.items() if name.startswith(f"test_{verb}_")]
        assert named, verb
        assert all("kind" in test.__annotations__ for test in named), verb


def test_start_is_reported_and_so_is_the_end(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        await engine.start(kind.launch(1, "exit", "3"))
        started, exited = await take(events, 2)
        assert isinstance(started, Started)
        assert started.worker == 1
        assert started.pid > 0
        assert exited == Exited(worker=1, exit_code=3)
        # A number is used once: nothing is started by it again.
        await engine.start(kind.launch(1, "exit", "3"))
        await engine.start(kind.launch(2, "exit", "0"))
        assert [event.worker for event in await take(events, 2)] == [2, 2]
        assert await engine.running() == {}
        await engine.close()

    run(test)


def test_list_holds_those_that_run(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        assert await engine.running() == {}
        for worker in (1, 2):
            await engine.start(kind.launch(worker, "wait"))
        pids = {event.worker: event.pid for event in await take(events, 2) if isinstance(event, Started)}
        assert await engine.running() == pids
        await engine.stop(1, force=True)
        assert await anext(events) == Exited(worker=1, exit_code=-9)
        assert await engine.running() == {2: pids[2]}
        await engine.close()

    run(test)


def test_examine_says_which_processes_make_progress(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        for worker in (1, 2):
            await engine.start(kind.launch(worker, "wait"))
        pids = {event.worker: event.pid for event in await take(events, 2) if isinstance(event, Started)}
        if kind.machine is not None:
            kind.machine.hang(2)
        else:
            os.kill(pids[2], signal.SIGSTOP)
        await wait_until_examined(engine, {1: "waiting", 2: "stopped"})
        await engine.stop(1, force=True)
        assert await anext(events) == Exited(worker=1, exit_code=-9)
        assert (await engine.examine([1]))[1].state == "gone"
        await engine.close()

    run(test)


def test_measure_says_what_workers_use(real: Kind) -> None:
    """Whichever process the worker is in, its memory is seen; what it uses is known from the second sample on."""

    async def test() -> None:
        engine = real.make()
        await engine.open()
        events = engine.events()
        await engine.start(real.launch(1, "wait"))
        await take(events, 1)
        assert (await engine.measure())[""].workers == {}
        found: dict[int, WorkerMetrics] = {}
        deadline = time.monotonic() + DEADLINE_S
        while not found:
            assert time.monotonic() < deadline
            sample = (await engine.measure())[""]
            found = sample.workers
        assert 2**20 < found[1].memory_bytes < 2**36 and found[1].cpus >= 0
        await engine.stop(1, force=True)
        assert await anext(events) == Exited(worker=1, exit_code=-9)
        assert (await engine.measure())[""].workers == {}
        await engine.close()

    run(test)


async def wait_until_examined(engine: Engine, want: dict[int, str]) -> None:
    found: dict[int, str] = {}
    deadline = time.monotonic() + DEADLINE_S
    while found != want:
        assert time.monotonic() < deadline, found
        found = {worker: vital.state for worker, vital in (await engine.examine(list(want))).items()}


def test_examine_needs_no_warm_parent(real: Kind) -> None:
    async def test() -> None:
        engine = real.make()
        await engine.open()
        events = engine.events()
        await engine.start(real.launch(1, "wait"))
        await take(events, 1)
        parent = json.loads((real.directory / "engine.json").read_text())["pid"]
        os.kill(parent, signal.SIGSTOP)
        await wait_until_examined(engine, {1: "waiting"})
        os.kill(parent, signal.SIGCONT)
        await engine.close()

    run(test)


def test_examine_tells_nothing_where_the_record_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text("{")
    assert asyncio.run(LocalEngine(tmp_path).examine([1])) == {}


def test_examine_tells_nothing_where_the_system_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("legato.engines.local.examine", fail)
    assert asyncio.run(LocalEngine(tmp_path).examine([1])) == {}


def test_crash_by_a_signal_is_reported_as_negative(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        await engine.start(kind.launch(1, "kill", "6"))
        assert (await take(events, 2))[1] == Exited(worker=1, exit_code=-6)
        await engine.close()

    run(test)


def test_drain_lets_a_worker_end_as_it_likes(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        ready = kind.directory / "ready"
        await engine.start(kind.launch(1, "drain", str(ready)))
        await engine.start(kind.launch(2, "wait"))
        await take(events, 2)
        await wait_for(ready.exists)
        await engine.stop(1, force=False)
        assert await anext(events) == Exited(worker=1, exit_code=7)
        await engine.stop(2, force=False)
        assert await anext(events) == Exited(worker=2, exit_code=-15)
        await engine.close()

    run(test)


def test_kill_ends_one_that_will_not_drain(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        ready = kind.directory / "ready"
        await engine.start(kind.launch(1, "wait"))
        await engine.start(kind.launch(2, "stubborn", str(ready)))
        await take(events, 2)
        await wait_for(ready.exists)
        await engine.stop(2, force=False)
        await engine.stop(1, force=False)
        assert await anext(events) == Exited(worker=1, exit_code=-15)
        assert set(await engine.running()) == {2}
        await engine.stop(2, force=True)
        await engine.stop(2, force=True)
        assert await anext(events) == Exited(worker=2, exit_code=-9)
        await engine.stop(2, force=True)
        await engine.stop(99, force=True)
        assert await engine.running() == {}
        await engine.close()

    run(test)


def test_hang_of_a_worker_does_not_hinder_others(kind: Kind) -> None:
    """A process that does nothing any more, not even die when asked, keeps its slot until it is killed."""

    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        await engine.start(kind.launch(1, "wait"))
        (started,) = await take(events, 1)
        assert isinstance(started, Started)
        if kind.machine is not None:
            kind.machine.hang(1)
        else:
            os.kill(started.pid, signal.SIGSTOP)
            await wait_for(lambda: state_of(started.pid) == "T")
        await engine.stop(1, force=False)
        await engine.start(kind.launch(2, "exit", "0"))
        assert [event.worker for event in await take(events, 2)] == [2, 2]
        assert await engine.running() == {1: started.pid}
        await engine.stop(1, force=True)
        assert await anext(events) == Exited(worker=1, exit_code=-9)
        await engine.close()

    run(test)


def test_fence_of_a_driver_that_was_replaced(kind: Kind) -> None:
    """Of two drivers the later one decides: what the earlier one asks for does not happen."""

    async def test() -> None:
        first = kind.make()
        await first.open()
        await first.rendezvous()
        await first.start(kind.launch(1, "wait"))
        await take(first.events(), 1)
        second = kind.make()
        await second.open()
        events = second.events()
        seen = await second.running()
        assert set(seen) == {1}
        with pytest.raises(LegatoError, match="taken over"):
            async for _ in first.events():
                pass
        await first.stop(1, force=True)
        await first.start(kind.launch(2, "exit", "0"))
        await first.close()
        await second.start(kind.launch(3, "exit", "0"))
        told = [await anext(events)]
        while told[-1] != Exited(worker=3, exit_code=0):
            told.append(await anext(events))
        assert {event.worker for event in told} <= {1, 3}
        assert await second.running() == seen
        await second.close()

    run(test)


def test_fence_of_a_worker_is_confirmed_once_it_is_gone(kind: Kind) -> None:
    """Its slot is free only with its last process."""

    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        path = kind.directory / "child"
        await engine.start(kind.launch(1, "family", str(path)))
        (started,) = await take(events, 1)
        assert isinstance(started, Started)
        if kind.machine is None:
            await wait_for(lambda: path.exists() and path.read_text())
        await engine.stop(1, force=True)
        assert await anext(events) == Exited(worker=1, exit_code=-9)
        assert await engine.running() == {}
        if kind.machine is None:
            assert not is_alive(started.pid)
            await wait_for(lambda: not is_alive(int(path.read_text())))
        await engine.close()

    run(test)


def test_adopt_after_the_driver_is_lost(kind: Kind) -> None:
    async def test() -> None:
        first = kind.make()
        await first.open()
        events = first.events()
        await first.start(kind.launch(1, "wait"))
        await first.start(kind.launch(2, "wait"))
        await take(events, 2)
        before = await first.running()
        where = await first.rendezvous()
        # Asking for the next event is what acknowledges the one before.
        asking = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)
        asking.cancel()
        await first.detach()
        if kind.machine is not None:
            kind.machine.end(2, -9)
        else:
            os.kill(before[2], signal.SIGKILL)
            await wait_for(lambda: not is_alive(before[2]))

        second = kind.make()
        await second.open()
        events = second.events()
        await wait_until_running(second, {1: before[1]})
        assert await second.rendezvous() == where
        assert await anext(events) == Exited(worker=2, exit_code=-9)
        await second.start(kind.launch(3, "exit", "0"))
        started, exited = await take(events, 2)
        assert (type(started), started.worker) == (Started, 3)
        assert exited == Exited(worker=3, exit_code=0)
        await second.close()

    run(test)


async def wait_until_running(engine: Engine, want: dict[int, int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := await engine.running()) != want:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.01)


def test_adopt_what_the_last_driver_had_not_heard(kind: Kind) -> None:
    async def test() -> None:
        first = kind.make()
        await first.open()
        events = first.events()
        await first.start(kind.launch(1, "exit", "5"))
        seen = await take(events, 2)
        await first.detach()
        second = kind.make()
        await second.open()
        # The first driver asked for the second event, so that only the first is known to it.
        assert await anext(second.events()) == seen[1]
        await second.close()

    run(test)


def test_close_ends_everything(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        await engine.rendezvous()
        await engine.start(kind.launch(1, "wait"))
        (started,) = await take(events, 1)
        await engine.close()
        assert [event async for event in events] == [Exited(worker=1, exit_code=-9)]
        assert isinstance(started, Started)
        assert not is_alive(started.pid)
        assert not (kind.directory / "engine.json").exists()

    run(test)
    assert processes_of(kind.directory) == []


# ---------------------------------------------------------------- real processes only


def test_log_environment_directory_and_session(real: Kind) -> None:
    async def test() -> None:
        engine = real.make()
        await engine.open()
        events = engine.events()
        program = ["show", "--flag"]
        for worker in (1, 2):
            await engine.start(real.launch(worker, *program))
        await take(events, 4)
        assert sorted(real.log(1).splitlines()) == [
            "err",
            f"out {program} {program if real.name == 'fork' else ['-c', *program]} red {real.directory}",
            "stdin '' session True",
        ]
        assert len(real.log(2).splitlines()) == 3
        await engine.close()

    run(test)


def test_a_worker_that_raises_or_quits(real: Kind) -> None:
    async def test() -> None:
        engine = real.make()
        await engine.open()
        events = engine.events()
        await engine.start(real.launch(1, "raise"))
        assert (await take(events, 2))[1] == Exited(worker=1, exit_code=1)
        await engine.start(real.launch(2, "quit"))
        assert (await take(events, 2))[1] == Exited(worker=2, exit_code=1)
        await engine.start(Launch(**{**as_dict(real.launch(3, "wait")), "directory": "/nowhere"}))
        assert (await take(events, 2))[1] == Exited(worker=3, exit_code=1)
        assert "RuntimeError: as asked" in real.log(1)
        assert real.log(2) == "no such thing\n"
        assert "/nowhere" in real.log(3)
        await engine.close()

    run(test)


def as_dict(launch: Launch) -> dict[str, Any]:
    return {name: getattr(launch, name) for name in launch.__struct_fields__}


@pytest.mark.parametrize("how", ["force", "crash"])
def test_children_end_with_their_worker(real: Kind, how: str) -> None:
    async def test() -> None:
        engine = real.make()
        await engine.open()
        events = engine.events()
        path = real.directory / "child"
        await engine.start(real.launch(1, "family", str(path)))
        (started,) = await take(events, 1)
        assert isinstance(started, Started)
        await wait_for(lambda: path.exists() and path.read_text())
        child = int(path.read_text())
        assert is_alive(child)
        if how == "force":
            await engine.stop(1, force=True)
        else:
            os.kill(started.pid, signal.SIGKILL)
        assert await anext(events) == Exited(worker=1, exit_code=-9)
        await wait_for(lambda: not is_alive(child))
        await engine.close()

    run(test)


def test_requests_made_during_the_imports_wait(tmp_path: Path, root: None) -> None:
    async def test() -> None:
        kind = Kind("fork", tmp_path)
        engine = kind.make(preload=("torch",))
        begun = time.monotonic()
        await engine.open()
        for worker in (1, 2):
            await engine.start(kind.launch(worker, "twins", str(tmp_path / "twins")))
        assert time.monotonic() - begun < 0.5
        host, port = (await engine.rendezvous()).split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        await take(engine.events(), 4)
        # Forked from one parent they must not draw the same numbers.
        assert len(set((tmp_path / "twins").read_text().split())) == 2
        await engine.close()

    run(test)


def test_warm_parent_killed(real: Kind) -> None:
    async def test() -> None:
        engine = real.make()
        await engine.open()
        events = engine.events()
        where = await engine.rendezvous()
        for worker in (1, 2):
            await engine.start(real.launch(worker, "wait"))
        await take(events, 2)
        pids = await engine.running()
        before = record_of(real)
        os.kill(before["pid"], signal.SIGKILL)
        # No reader asks for it: it must not get lost.
        await engine.start(real.launch(3, "exit", "4"))
        seen = await take(events, 3)
        (moved,) = [event for event in seen if isinstance(event, StoreMoved)]
        assert moved.rendezvous != where
        assert await engine.rendezvous() == moved.rendezvous
        assert [event for event in seen if event != moved][1] == Exited(worker=3, exit_code=4)
        assert await engine.running() == pids
        assert record_of(real)["node_nonce"] == before["node_nonce"]
        assert all(is_alive(pid) for pid in pids.values())
        os.kill(pids[1], signal.SIGUSR1)
        assert await anext(events) == Exited(worker=1, exit_code=-9)
        await engine.stop(2, force=True)
        assert await anext(events) == Exited(worker=2, exit_code=-9)
        await engine.close()

    run(test)
    assert processes_of(real.directory) == []


def test_driver_and_warm_parent_killed(real: Kind) -> None:
    async def test() -> None:
        first = real.make()
        await first.open()
        await first.start(real.launch(1, "wait"))
        await first.start(real.launch(2, "wait"))
        await take(first.events(), 2)
        pids = await first.running()
        await first.detach()
        record = record_of(real)
        parent = record["pid"]
        os.kill(parent, signal.SIGKILL)
        os.kill(pids[1], signal.SIGKILL)
        await wait_for(lambda: not is_alive(parent) and not is_alive(pids[1]))
        second = real.make()
        await second.open()
        assert await second.running() == {2: pids[2]}
        events = second.events()
        seen = await take(events, 2)
        assert seen[-1] == Exited(worker=1, exit_code=-9) or seen[0] == Exited(worker=1, exit_code=-9)
        assert record_of(real)["node_nonce"] == record["node_nonce"], "its workers are on one node with those to come"
        await second.close()
        assert not is_alive(pids[2])

    run(test)


def test_store_killed(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        where = await engine.rendezvous()
        if kind.machine is not None:
            kind.machine.move_store()
        else:
            parent = json.loads(kind.record.read_text())["pid"]
            (store,) = children_of(parent)
            os.kill(store, signal.SIGKILL)
        moved = await anext(engine.events())
        assert isinstance(moved, StoreMoved)
        assert moved.rendezvous != where
        assert await engine.rendezvous() == moved.rendezvous
        await engine.close()

    run(test)


def test_the_warm_parent_ends_when_no_worker_is_left(real: Kind) -> None:
    async def test() -> None:
        engine = real.make(idle_limit_s=0.3)
        await engine.open()
        events = engine.events()
        await engine.rendezvous()
        await engine.start(real.launch(1, "wait"))
        await take(events, 1)
        pid = (await engine.running())[1]
        record = json.loads((real.directory / "engine.json").read_text())
        await engine.detach()
        await asyncio.sleep(1.0)
        assert is_alive(record["pid"])
        os.kill(pid, signal.SIGTERM)
        await wait_for(lambda: not is_alive(record["pid"]))
        assert not Path(record["socket"]).parent.exists()
        # No driver heard of the exit: the next driver does.
        second = real.make()
        await second.open()
        seen = await take(second.events(), 2)
        assert seen[-1] == Exited(worker=1, exit_code=-15)
        await second.close()

    run(test)


def test_imports_that_fail_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('no torch here')\n")
    here = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'broken'}{os.pathsep}{here / 'src'}")

    async def test() -> None:
        engine = LocalEngine(tmp_path / "job", preload=("torch",))
        await engine.open()
        with pytest.raises(LegatoError, match="no torch here"):
            await engine.rendezvous()
        with pytest.raises(LegatoError, match=r"warm-parent\.log"):
            await anext(engine.events())
        await engine.close()

    run(test)


# ---------------------------------------------------------------- what workers are given


def test_workers_know_their_node_by_a_nonce_that_another_engine_does_not_have(real: Kind) -> None:
    seen = [given(real, ask(real, "LEGATO_NODE"))["seen"]["LEGATO_NODE"] for _ in range(2)]
    assert all(len(nonce) == 32 for nonce in seen)
    assert seen[0] != seen[1], "no worker of the first is left: the second may be on another machine"


def record_of(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((kind.directory / "engine.json").read_text())
    return found


def given(kind: Kind, launch: Launch, **options: Any) -> dict[str, Any]:
    """Run a worker that writes down what it was given."""

    async def test() -> None:
        engine = kind.make(**options)
        await engine.open()
        events = engine.events()
        await engine.start(launch)
        assert (await take(events, 2))[1] == Exited(worker=launch.worker, exit_code=0), kind.log(launch.worker)
        await engine.close()

    run(test)
    found: dict[str, Any] = json.loads((kind.directory / "given.json").read_text())
    return found


def ask(kind: Kind, *names: str, **changes: Any) -> Launch:
    launch = kind.launch(1, "given", str(kind.directory / "given.json"), *names)
    return Launch(**{**as_dict(launch), **changes})


def test_a_job_s_variables_are_there_before_python_is(real: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader, Python and OpenMP read theirs once; a forked worker's Python began with its warm parent."""
    monkeypatch.setenv("OMP_PROC_BIND", "spread")
    variables = {"PYTHONPATH": "lib", "OMP_PROC_BIND": "close", "LD_LIBRARY_PATH": "/nowhere", "PYTHONHASHSEED": "7"}
    code = real.directory / "code"
    code.mkdir()
    launch = ask(real, *variables, environment=variables, directory=str(code))
    found = given(real, launch, environment=variables, directory=str(code))
    theirs = {name: value for name, value in variables.items() if name != "PYTHONPATH"}
    assert theirs.items() <= found["at_start"].items()
    assert theirs.items() <= found["seen"].items()
    assert str(code / "lib") in found["path"]
    # Ours is still found, behind the job's.
    paths = found["seen"]["PYTHONPATH"].split(os.pathsep)
    assert paths == [str(code / "lib"), *os.environ["PYTHONPATH"].split(os.pathsep)]
    seven = {**os.environ, "PYTHONHASHSEED": "7"}
    asked = subprocess.run([sys.executable, "-c", "print(hash('legato'))"], env=seven, capture_output=True, check=True)
    assert found["hash"] == int(asked.stdout)


def test_all_workers_hash_alike(tmp_path: Path, root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked or fresh, in this run or the next."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    hashes = set()
    for name in ("fork", "fresh", "fork"):
        kind = Kind(name, tmp_path)
        hashes.add(given(kind, ask(kind))["hash"])
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("slot", "visible", "order"),
    [
        ("n/0", "GPU-6e", None),
        ("n/1", "3", "PCI_BUS_ID"),
        ("n/2", "", None),
        ("n/3", "MIG-a7", None),
        ("n/0+3", "GPU-6e,MIG-a7", None),
    ],
)
def test_a_worker_sees_its_slot_s_gpus_only(
    real: Kind, monkeypatch: pytest.MonkeyPatch, slot: str, visible: str, order: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    # The job has no say in it: the others' slots are not its own.
    variables = {"CUDA_VISIBLE_DEVICES": "0,1"} | ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"} if order else {})
    launch = ask(real, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", slot=slot, environment=variables)
    found = given(real, launch, devices=["GPU-6e", "cuda:3", "cpu", "MIG-a7"], environment=variables)
    assert found["seen"] == {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_torch_s_name_of_a_device_is_that_of_the_only_one(tmp_path: Path) -> None:
    async def test() -> None:
        engine = LocalEngine(tmp_path, ["cuda:1", "GPU-6e", "cpu"])
        assert [await engine.device_of(slot) for slot in ("n/0", "n/1", "n/2")] == ["cuda:0", "cuda:0", "cpu"]
        with pytest.raises(UsageError, match="3 slots"):
            await engine.device_of("n/3")
        with pytest.raises(UsageError, match="3 slots"):
            await engine.start(Kind("fork", tmp_path).launch(1, slot="n/3"))
        assert await LocalEngine(tmp_path, []).device_of("n/17") == "cpu"

    run(test)


def test_a_slot_of_another_node_is_refused_where_the_node_is_known(tmp_path: Path) -> None:
    """Without a name, slots of any node are slots of this machine: a laptop may be renamed under a job."""

    async def test() -> None:
        engine = LocalEngine(tmp_path, ["cuda:1"], node="gpu-1")
        assert await engine.device_of("gpu-1/0") == "cuda:0"
        told = (
            r"Cannot use slot gpu-2/0: it is on node 'gpu-2', and this machine is node 'gpu-1'\. "
            r"Assign slots of 'gpu-1', or start the job's driver on 'gpu-2'\."
        )
        with pytest.raises(UsageError, match=told):
            await engine.device_of("gpu-2/0")
        with pytest.raises(UsageError, match=told):
            await engine.start(Kind("fork", tmp_path).launch(1, slot="gpu-2/0"))
        with pytest.raises(UsageError, match="Cannot use 'gpu-1' as a slot: a slot is written NODE/NUMBER"):
            await engine.device_of("gpu-1")
        assert await LocalEngine(tmp_path, ["cuda:1"]).device_of("gpu-2/0") == "cuda:0"

    run(test)


def test_adopted_workers_keep_their_devices(tmp_path: Path, root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on another kind of device than the others would change the result."""

    async def test() -> None:
        kind = Kind("fork", tmp_path)
        monkeypatch.setattr(local, "find_devices", lambda: ("GPU-a", "GPU-b"))
        first = kind.make()
        await first.open()
        await first.start(kind.launch(1, "wait"))
        await take(first.events(), 1)
        await first.detach()
        monkeypatch.setattr(local, "find_devices", lambda: ())
        second = kind.make()
        await second.open()
        assert await second.device_of("n/1") == "cuda:0"
        await second.close()
        third = kind.make()
        await third.open()
        assert await third.device_of("n/1") == "cpu"
        await third.close()

    run(test)


def test_a_warm_parent_of_another_job_is_not_taken_over(real: Kind) -> None:
    """It was started with that one's variables."""

    async def test() -> None:
        first = real.make(environment={"COLOUR": "blue"})
        await first.open()
        where = await first.rendezvous()
        await first.start(real.launch(1, "exit", "5"))
        await take(first.events(), 2)
        await first.detach()
        second = real.make(environment={"COLOUR": "green"})
        await second.open()
        assert await second.rendezvous() != where
        # An exit that was not acknowledged is not lost with it. The start's acknowledgement may not have arrived.
        events = second.events()
        event = await anext(events)
        if isinstance(event, Started):
            assert event.worker == 1
            event = await anext(events)
        assert event == Exited(worker=1, exit_code=5)
        await second.close()

    run(test)
    assert processes_of(real.directory) == []
