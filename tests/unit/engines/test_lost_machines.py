"""What the engine of agents answers about machines that are lost (`legato.engines.agents`)."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest

from legato.core.agent_messages import OpenJob
from legato.core.exits import EXIT_UNSTARTED
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, RECORD, AgentsEngine
from legato.engines.agents_record import AgentsRecord, NodeRecord, write_record
from legato.engines.base import EngineEvent, Exited, Launch, NodeLost
from legato.system.door import Door

LIMIT_S = 30.0


def test_a_start_on_a_machine_that_has_just_been_lost_ends_without_an_error(tmp_path: Path) -> None:
    async def run() -> list[EngineEvent]:
        record = AgentsRecord("secret", {"b": NodeRecord(("cpu", "cpu"), {7: 4711})})
        (tmp_path / RECORD).write_bytes(msgspec.json.encode(record))
        door = Door(paths=(PATH,))
        await door.open()
        engine = AgentsEngine(
            tmp_path,
            door,
            [NodeSpec("b")],
            OpenJob(environment={}, directory=str(tmp_path)),
            log_path=lambda worker: tmp_path / f"{worker}.log",
            start_limit_s=0.0,
        )
        await engine.open(1)
        await engine.start(
            Launch(
                worker=8,
                slot="b/1",
                program=(),
                environment={},
                directory=str(tmp_path),
                log_path=str(tmp_path / "8.log"),
            )
        )
        assert engine.last_running == {7: 4711}, "only the worker that may run"
        found: list[EngineEvent] = []
        async for event in engine.events():
            found.append(event)
            if isinstance(event, Exited):
                break
        await engine.detach()
        await door.close()
        return found

    lost, ended = asyncio.run(asyncio.wait_for(run(), LIMIT_S))
    assert isinstance(lost, NodeLost)
    assert ended == Exited(8, EXIT_UNSTARTED, "the machine b is lost")


def test_the_record_of_machines_is_on_disk_before_a_start_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers on other machines survive a power loss of the driver's machine."""
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    path = tmp_path / RECORD
    write_record(path, AgentsRecord("secret"))
    content, folder = synced
    assert content.startswith(str(path)) and content != str(path)
    assert folder == str(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [RECORD]


@pytest.mark.parametrize("workers", [{7: 4711}, {}], ids=["with a worker", "without"])
def test_a_machine_that_has_certainly_ended_is_awaited_no_longer(tmp_path: Path, workers: dict[int, int]) -> None:
    async def run() -> tuple[list[EngineEvent], tuple[str, ...]]:
        record = AgentsRecord("secret", {"b": NodeRecord(("cpu",), workers)})
        (tmp_path / RECORD).write_bytes(msgspec.json.encode(record))
        door = Door(paths=(PATH,))
        await door.open()
        opening = OpenJob(environment={}, directory=str(tmp_path))
        path = tmp_path / "log"
        # Machine a keeps the engine open; the lease would end after hours.
        nodes = [NodeSpec("a"), NodeSpec("b")]
        engine = AgentsEngine(
            tmp_path, door, nodes, opening, log_path=lambda _: path, start_limit_s=0.0, lease_s=1e4, grows=True
        )
        engine._file.read()
        engine._record.nodes["a"] = NodeRecord(("cpu",), {1: 1})
        engine._file.write()
        await engine.open(1)
        engine.confirm_end("b", "its pod has ended", time.monotonic())
        engine.confirm_end("c", "it is no machine of the job", time.monotonic())
        found: list[EngineEvent] = []
        async with asyncio.timeout(5):
            async for event in engine.events():
                found.append(event)
                if isinstance(event, Exited) or len(found) == (3 if workers else 1):
                    break
        running = tuple(engine._record.nodes)
        await engine.detach()
        await door.close()
        return found, running

    found, known = asyncio.run(asyncio.wait_for(run(), LIMIT_S))
    ended = [event for event in found if isinstance(event, Exited)]
    assert [(event.worker, event.reason) for event in ended] == [(7, "its pod has ended")] * len(workers)
    assert known == (("b", "a") if workers else ("a",))
