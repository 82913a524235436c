"""The agent of a machine in a pool, without a server (`legato.agent.pool_agent`)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

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
