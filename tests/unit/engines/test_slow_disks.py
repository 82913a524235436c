"""A disk that does not answer delays what is written, and makes no machine silent: real connections, and no workers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engines.test_agents_engine import Bed, launch, next_request, wait_for, wait_for_answer
from websockets.asyncio.client import ClientConnection

from legato.core.agent_messages import (
    AgentEnvelope,
    Beat,
    Closed,
    CloseJob,
    FilePiece,
    FileTaken,
    LogBytes,
    Opened,
    SendCheckpoint,
    TookLog,
    encode_agent_frame,
)
from legato.core.errors import LegatoError
from legato.engines import side_work
from legato.engines.agent_logs import LogIntake, LogWriter
from legato.engines.agents import PATH
from legato.engines.base import EngineEvent, NodeBack, NodeLost
from legato.engines.file_pieces import PieceReceiver
from legato.engines.incoming import STALL_LIMIT_S, Incoming
from legato.engines.side_work import TaskSet, WorkQueue

LIMIT_S = 10.0
WORKER = 7


class Disk:
    """Writes wait in their threads until the test lets them go on."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.goes_on = threading.Event()

    def delay(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def wait_first(*arguments: Any) -> Any:
            self.is_reached.set()
            assert self.goes_on.wait(LIMIT_S)
            return real(*arguments)

        return wait_first

    async def until_reached(self) -> None:
        assert await asyncio.to_thread(self.is_reached.wait, LIMIT_S)


@pytest.fixture
def disk() -> Iterator[Disk]:
    found = Disk()
    yield found
    found.goes_on.set()


@contextlib.asynccontextmanager
async def lead(path: Path, **options: Any) -> AsyncIterator[tuple[Bed, ClientConnection, AsyncIterator[EngineEvent]]]:
    """Let an engine have one machine, which does not share the checkpoints and has a worker."""
    bed = Bed(path, ("a",), checkpoints=path / "checkpoints", **options)
    await bed.door.open()
    opening = asyncio.create_task(bed.engine.open(1))
    await until(lambda: PATH in bed.door._mounts)
    agent = await join(bed)
    await opening
    events = bed.engine.events()
    assert await anext(events) == NodeBack("a", ("a/0",))
    await bed.engine.start(launch(WORKER, "a/0", path))
    try:
        yield bed, agent, events
    finally:
        await bed.engine.detach()
        await bed.door.close()


async def join(bed: Bed) -> ClientConnection:
    agent = await bed.greet("a", "a")
    await say(agent, Opened(rendezvous="a:1", workers=(WORKER,), shares_checkpoints=False))
    return agent


async def say(agent: ClientConnection, *said: AgentEnvelope) -> None:
    for message in said:
        await agent.send(encode_agent_frame(message))


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- several objects change without an event
        await asyncio.sleep(0.001)


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def bring(bed: Bed, step: int) -> asyncio.Task[str]:
    return asyncio.create_task(bed.engine.bring(WORKER, f"/there/step-{step}.legato"))


def whole(step: int, content: bytes = b"content") -> FilePiece:
    sha256 = hashlib.sha256(content).hexdigest()
    return FilePiece(name=f"step-{step}.legato", offset=0, data=content, num_bytes=len(content), sha256=sha256)


@pytest.mark.parametrize("what", ["checkpoint", "log"])
def test_an_agent_is_heard_while_what_it_has_sent_is_written(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    place = PieceReceiver if what == "checkpoint" else LogWriter
    monkeypatch.setattr(place, "take", disk.delay(place.take))

    async def test() -> None:
        async with lead(tmp_path) as (bed, agent, _):
            bringing = bring(bed, 10)
            await wait_for(agent, SendCheckpoint)
            log = LogBytes(worker=WORKER, offset=0, data=b"hello\n")
            await say(agent, whole(10) if what == "checkpoint" else log)
            await disk.until_reached()
            for _ in range(5):
                bed.now += 3.0
                await say(agent, Beat(sent_s=bed.now))
                await wait_for_answer(agent, bed.now)
            assert not bed.engine._nodes["a"].is_lost
            disk.goes_on.set()
            if what == "checkpoint":
                assert read(await bringing) == b"content"
            else:
                assert await wait_for(agent, TookLog) == TookLog(worker=WORKER, num_bytes=6)

    run(test)


def test_an_agent_has_closed_the_job_only_when_its_last_logs_are_written(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogWriter, "take", disk.delay(LogWriter.take))

    async def test() -> None:
        async with lead(tmp_path) as (bed, agent, _):
            closing = asyncio.create_task(bed.engine.close())
            await wait_for(agent, CloseJob)
            log = LogBytes(worker=WORKER, offset=0, data=b"the last words\n")
            await say(agent, log, Closed(), Beat(sent_s=1.0))
            await disk.until_reached()
            await wait_for_answer(agent, 1.0)
            assert not closing.done()
            disk.goes_on.set()
            await closing
            assert (tmp_path / str(WORKER)).read_bytes() == b"the last words\n"

    run(test)


def test_silent_machines_are_noticed_while_a_log_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_ever(_self: LogIntake, _now: float) -> list[TookLog]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(LogIntake, "list_due", wait_for_ever)

    async def test() -> None:
        async with lead(tmp_path) as (bed, _, events):
            bed.now += 5.0
            assert await anext(events) == NodeLost("a", "its agent is silent for 4 s", silent_s=5.0)

    run(test)


def test_a_checkpoint_comes_also_if_its_machine_was_lost_while_an_earlier_one_was_written(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PieceReceiver, "take", disk.delay(PieceReceiver.take))

    async def test() -> None:
        async with lead(tmp_path) as (bed, agent, events):
            first = bring(bed, 10)
            await wait_for(agent, SendCheckpoint)
            await say(agent, whole(10))
            await disk.until_reached()
            bed.now += 5.0
            assert isinstance(await anext(events), NodeLost)
            with pytest.raises(LegatoError, match="only on the machine a, which is lost"):
                await first
            other = await join(bed)
            assert isinstance(await anext(events), NodeBack)
            second = bring(bed, 20)
            assert (await wait_for(other, SendCheckpoint)).name == "step-20.legato"
            disk.goes_on.set()
            await until(lambda: not bed.engine._nodes["a"].incoming._is_writing)
            await say(other, whole(20))
            assert read(await second) == b"content"

    run(test)


def test_a_slow_disk_is_no_reason_to_send_a_checkpoint_again(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PieceReceiver, "take", disk.delay(PieceReceiver.take))

    async def test() -> None:
        async with lead(tmp_path, silence_limit_s=1e6) as (bed, agent, _):
            bringing = bring(bed, 10)
            await wait_for(agent, SendCheckpoint)
            await say(agent, whole(10))
            await disk.until_reached()
            bed.now += 2 * STALL_LIMIT_S
            bed.engine._nodes["a"].incoming.check_progress(bed.now)
            disk.goes_on.set()
            await bringing
            assert isinstance(await next_request(agent), FileTaken)

    run(test)


def test_a_checkpoint_counts_as_saved_although_old_ones_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied", "step-1.legato")

    monkeypatch.setattr(PieceReceiver, "prune", refuse)

    async def test() -> None:
        async with lead(tmp_path) as (bed, agent, _):
            bringing = bring(bed, 10)
            await wait_for(agent, SendCheckpoint)
            await say(agent, whole(10))
            assert read(await bringing) == b"content"
            assert "Cannot delete old checkpoints" in caplog.text

    run(test)


def test_a_driver_whose_engine_cannot_watch_the_machines_any_more_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Incoming, "check_progress", fail)

    async def test() -> None:
        async with lead(tmp_path) as (_, _, events):
            with pytest.raises(LegatoError, match=r"cannot serve the job's machines any more: OSError\(5, "):
                await anext(events)

    run(test)


def test_a_folder_that_does_not_answer_has_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").touch()
    with pytest.raises(NotADirectoryError):
        os.lstat(tmp_path / "folder" / "step-1.legato")
    assert PieceReceiver(tmp_path / "folder").num_bytes_of("step-1.legato") == 0


def test_work_is_done_in_its_order_and_what_waits_for_a_lost_connection_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(side_work, "_MAX_BYTES", 3 * side_work._BYTES_PER_ENTRY)

    async def test() -> None:
        done: list[int] = []
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def work(number: int) -> None:
            begun.set()
            await may_end.wait()
            done.append(number)

        queue, tasks = WorkQueue(), TaskSet(lambda error: pytest.fail(str(error)))
        tasks.begin(queue.run(), "work")
        await queue.put(partial(work, 1))
        await begun.wait()
        for number in (2, 3, 4):
            await queue.put(partial(work, number))
        putting = asyncio.create_task(queue.put(partial(work, 5)))
        await asyncio.sleep(0)
        assert not putting.done(), "as much waits as may"
        queue.drop()
        await putting
        await queue.put(partial(work, 6))
        may_end.set()
        await until(lambda: done[-1:] == [6])
        assert done == [1, 5, 6]
        await tasks.cancel()

    run(test)
