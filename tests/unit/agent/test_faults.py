"""The agent of a machine in a pool, without a server (`legato.agent.pool_agent`)."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import httpx
import pytest

from legato.agent.orders import AgentOrder
from legato.agent.pool_agent import PoolAgent


@pytest.fixture
def agent(tmp_path: Path) -> PoolAgent:
    made = PoolAgent("http://127.0.0.1:1", "b", num_slots=1, home=tmp_path, say=lambda _: None)
    made._folder.mkdir(parents=True)
    return made


def test_old_files_are_removed_also_if_an_agent_removes_its_own_meanwhile(
    agent: PoolAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, gone, used = (agent._folder / f"{name}-123" for name in ("old", "new", "gone", "used"))
    for path in (old, new, gone, used):
        path.mkdir()
        os.utime(path, None if path == new else (0, 0))
    is_dir = Path.is_dir

    def look(path: Path) -> bool:
        found = is_dir(path)
        if path == gone:
            shutil.rmtree(path)
        return found

    monkeypatch.setattr(Path, "is_dir", look)
    agent._remove_old({"used"})
    monkeypatch.undo()
    assert sorted(agent._folder.iterdir()) == sorted([new, used])
    shutil.rmtree(agent._folder)
    agent._remove_old(set())


def test_the_agent_forgets_the_orders_that_it_has_carried_out(
    agent: PoolAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def apply(_: httpx.AsyncClient, order: AgentOrder) -> None:
        if order.job == "slow":
            await asyncio.Event().wait()

    monkeypatch.setattr(agent, "_apply", apply)

    def order(job: str) -> AgentOrder:
        return AgentOrder(job=job, node="b", urls=("ws://h",), token="t", address="127.0.0.1")

    async def run() -> None:
        async with httpx.AsyncClient() as http:
            for number in range(10):
                agent._apply_all(http, (order(f"job-{number}"), order("slow")))
                slow = agent._applying["slow"]
                await asyncio.gather(*(task for task in agent._applying.values() if task is not slow))
            agent._apply_all(http, ())
            assert agent._applying == {"slow": slow}
            slow.cancel()

    asyncio.run(run())
