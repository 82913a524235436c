"""A command line that uses a platform in memory, with a clock that does not run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.platform import NOW, TOKEN, URL, Platform
from typer.testing import CliRunner

from legato.cli import main
from legato.cli.terminal import output
from legato.client.servers import KnownServers, Server, find_file, write_known

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with its own home and settings, and the current directory in it; the time zone is UTC."""
    for name in ("LEGATO_SERVER", "LEGATO_TOKEN", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(time, "time", lambda: NOW)
    return NOW


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch, now: float) -> Platform:
    """A platform in memory, to which the user is logged in."""
    platform = Platform()

    def make_line(server: Server, **options: Any) -> Any:
        return platform.line(server, **options)

    monkeypatch.setattr("legato.client.connection.Line", make_line)
    monkeypatch.setattr(output, "WATCH_EVERY_S", 0.0)
    write_known(KnownServers().with_server("test", Server(url=URL, token=TOKEN, user="anna")), find_file())
    return platform


@pytest.fixture
def call() -> Call:
    def call(*arguments: str, given: str | None = None) -> tuple[int, str, str]:
        result = CliRunner().invoke(main.app, list(arguments), input=given)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout, result.stderr

    return call
