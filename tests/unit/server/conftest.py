"""A running platform for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.unit.server.platform import ADMIN, NOW, Platform, make_template

from legato.control.records import Queue

NewPlatform = Callable[..., Platform]


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """The server's log is not shown: its threads write when they like, and tracebacks take long to draw."""
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()],
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "legato.db")


@pytest.fixture
def new_platform(tmp_path: Path, template: Path) -> Iterator[NewPlatform]:
    """Makes running platforms with other settings."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(Platform(tmp_path / "home", template, **settings).running())


@pytest.fixture
def platform(new_platform: NewPlatform) -> Platform:
    made: Any = new_platform()
    return made  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Platform]:
    """One platform for all tests of a module that only see requests refused. There is a queue of admins alone."""
    made = Platform(tmp_path_factory.mktemp("shared"), template)
    made.store.queues.put(Queue(name="admins", is_open=False), ADMIN, NOW)
    with made.running():
        yield made
