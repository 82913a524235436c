"""What `legato attach` shows of a job that another terminal, or a server, drives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.cli.local.reader import Reader

from legato.cli.local import watching
from legato.cli.terminal.display import Screen
from legato.driver import client
from legato.driver.journal import JobDirectory


def test_the_last_lines_of_a_main_worker_that_died_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = JobDirectory.of("job", tmp_path)
    directory.logs.mkdir(parents=True)
    logs = [directory.logs / f"worker-{worker}.log" for worker in (0, 1)]
    asked = 0

    class Answer:
        def __init__(self, worker: int) -> None:
            self.status = {"workers": [{"worker": worker, "rank": 0}]}

    def answer(*_: Any) -> Answer:
        nonlocal asked
        asked += 1
        if asked == 2:
            logs[0].write_text("0 dies\n")
        return Answer(min(asked - 1, 1))

    monkeypatch.setattr(client, "request", answer)
    monkeypatch.setattr(JobDirectory, "is_locked", lambda _: asked < 3)
    monkeypatch.setattr(watching, "_ASK_EVERY_S", 0.0)
    screen = Reader()
    watching.watch("job", cast("Screen", screen), tmp_path)
    assert screen.output == "0 dies\n"
