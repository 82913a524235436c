"""One suite over all engines: what a driver may rely on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from legato.core.errors import LegatoError, UsageError
from legato.engines import local
from legato.engines.base import Engine, EngineEvent, Exited, Launch, Started
from legato.engines.fake import FakeEngine, FakeMachine
from legato.engines.local import LocalEngine

ENTRY = "tests.contract.tiny_worker:main"
DEADLINE_S = 30.0


class Detachable(Engine, Protocol):
    async def detach(self) -> None: ...


class Kind:
    """Makes engines that all belong to one job."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.machine: FakeMachine | None = None

    def make(self, **options: Any) -> Detachable:
        if self.name == "fake":
            self.machine = self.machine or FakeMachine(_behave)
            return FakeEngine(self.machine)
        options.setdefault("preload", ())
        start = "fresh" if self.name == "fresh" else "fork"
        return LocalEngine(self.directory, start=start, entry=ENTRY, **options)

    def launch(self, worker: int, *program: str) -> Launch:
        return Launch(
            worker=worker,
            slot=0,
            program=program,
            environment={"COLOUR": "red"},
            directory=str(self.directory),
            log_path=str(self.directory / "logs" / f"worker-{worker}.log"),
        )

    def log(self, worker: int) -> str:
        return (self.directory / "logs" / f"worker-{worker}.log").read_text()


async def _behave(launch: Launch) -> int:
    match launch.program:
        case ["exit", code]:
            return int(code)
        case ["kill", number]:
            return -int(number)
        case ["stubborn", path]:
            await asyncio.to_thread(Path(path).write_text, "ready")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
    await asyncio.sleep(600)
    return 0


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert not local._let_go, "warm parents that nobody will ever wait for"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{here / 'src'}{os.pathsep}{here}")


@pytest.fixture(params=["fake", "fork", "fresh"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, root: None) -> Kind:
    return Kind(request.param, tmp_path)


@pytest.fixture(params=["fork", "fresh"])
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
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def processes_of(directory: Path) -> list[str]:
    found = subprocess.run(["ps", "-eo", "pid,stat,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(directory) in line]


def test_reports_start_and_exit_code(kind: Kind) -> None:
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
        assert await engine.running() == {}
        await engine.close()

    run(test)


def test_reports_a_signal_as_negative(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        await engine.start(kind.launch(1, "kill", "6"))
        assert (await take(events, 2))[1] == Exited(worker=1, exit_code=-6)
        await engine.close()

    run(test)


def test_soft_stop_then_force(kind: Kind) -> None:
    async def test() -> None:
        engine = kind.make()
        await engine.open()
        events = engine.events()
        ready = kind.directory / "ready"
        await engine.start(kind.launch(1, "wait"))
        await engine.start(kind.launch(2, "stubborn", str(ready)))
        await take(events, 2)
        await wait_for(ready.exists)
        assert set(await engine.running()) == {1, 2}
        await engine.stop(2, force=False)
        await engine.stop(1, force=False)
        assert await anext(events) == Exited(worker=1, exit_code=-15)
        await engine.stop(2, force=True)
        await engine.stop(2, force=True)
        assert await anext(events) == Exited(worker=2, exit_code=-9)
        await engine.stop(2, force=True)
        await engine.stop(99, force=True)
        assert await engine.running() == {}
        await engine.close()

    run(test)


def test_adoption_after_the_driver_is_lost(kind: Kind) -> None:
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


def test_unacknowledged_events_go_to_the_next_driver(kind: Kind) -> None:
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


def test_a_second_driver_replaces_the_first(kind: Kind) -> None:
    async def test() -> None:
        first = kind.make()
        await first.open()
        await first.rendezvous()
        second = kind.make()
        await second.open()
        await second.running()
        with pytest.raises(LegatoError, match="taken over"):
            await anext(first.events())
        await first.detach()
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
        os.kill(json.loads((real.directory / "engine.json").read_text())["pid"], signal.SIGKILL)
        # Asked of nobody: it must not get lost.
        await engine.start(real.launch(3, "exit", "4"))
        assert [await anext(events) for _ in range(2)][1] == Exited(worker=3, exit_code=4)
        assert await engine.rendezvous() != where
        assert await engine.running() == pids
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
        parent = json.loads((real.directory / "engine.json").read_text())["pid"]
        os.kill(parent, signal.SIGKILL)
        os.kill(pids[1], signal.SIGKILL)
        await wait_for(lambda: not is_alive(parent) and not is_alive(pids[1]))
        second = real.make()
        await second.open()
        assert await second.running() == {2: pids[2]}
        events = second.events()
        seen = await take(events, 2)
        assert seen[-1] == Exited(worker=1, exit_code=-9) or seen[0] == Exited(worker=1, exit_code=-9)
        await second.close()
        assert not is_alive(pids[2])

    run(test)


def test_store_killed(real: Kind) -> None:
    async def test() -> None:
        engine = real.make()
        await engine.open()
        where = await engine.rendezvous()
        parent = json.loads((real.directory / "engine.json").read_text())["pid"]
        (store,) = children_of(parent)
        os.kill(store, signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE_S
        while await engine.rendezvous() == where:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await engine.close()

    run(test)


def test_warm_parent_ends_when_nobody_is_left(real: Kind) -> None:
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
        # Nobody heard of the exit: the next driver does.
        second = real.make()
        await second.open()
        seen = await take(second.events(), 2)
        assert seen[-1] == Exited(worker=1, exit_code=-15)
        await second.close()

    run(test)


def test_imports_that_fail_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_devices(tmp_path: Path) -> None:
    async def test() -> None:
        engine = LocalEngine(tmp_path, slots=2, devices=["cuda:1", "cuda:3"])
        assert [await engine.device_of(slot) for slot in (0, 1)] == ["cuda:1", "cuda:3"]
        with pytest.raises(UsageError, match="2 slots"):
            await engine.device_of(2)
        free = LocalEngine(tmp_path, devices=[])
        assert free.num_slots is None
        assert await free.device_of(17) == "cpu"

    run(test)
