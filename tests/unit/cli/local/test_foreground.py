"""A driver that ends before its job does: workers that still train are not ended with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from legato.cli.local.foreground import Foreground
from legato.cli.terminal.display import Screen
from legato.core.errors import LegatoError
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory
from legato.engines.local import LocalEngine


class BrokenEngine:
    """An engine that cannot read the state of its workers any more."""

    is_open = True

    def __init__(self, last_running: dict[int, int]) -> None:
        self.last_running = last_running
        self.done: list[str] = []

    async def running(self) -> dict[int, int]:
        raise LegatoError("the engine is broken")

    async def detach(self) -> None:
        self.done.append("detached")

    async def close(self) -> None:
        self.done.append("closed")


class BrokenDriver:
    async def run(self) -> Any:
        raise LegatoError("the engine is broken")


@pytest.mark.parametrize(("last_running", "want"), [({1: 4711}, "detached"), ({}, "closed")])
def test_workers_are_left_to_the_next_driver(tmp_path: Path, last_running: dict[int, int], want: str) -> None:
    engine = BrokenEngine(last_running)
    foreground = Foreground(JobDirectory(tmp_path), cast("Screen", None))
    with pytest.raises(LegatoError, match="broken"):
        asyncio.run(foreground.drive(cast("Driver", BrokenDriver()), cast("LocalEngine", engine)))
    assert engine.done == [want]
    assert foreground.left_running == bool(last_running)
