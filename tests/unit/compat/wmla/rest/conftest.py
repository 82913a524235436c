"""A running platform with the plugin, but without a control loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog
from tests.unit.compat.wmla.rest.asking import Console
from tests.unit.server.platform import Platform, make_template

from legato.cli.platform.server import find_plugins

NewConsole = Callable[..., Console]


@pytest.fixture(scope="session", autouse=True)
def no_log() -> Iterator[None]:
    """Hide the server's log, because its threads write at any time."""
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
def new_console(tmp_path: Path, template: Path) -> Iterator[NewConsole]:
    """Return a function that starts a platform with given settings."""
    with ExitStack() as stack:

        def make(**settings: object) -> Console:
            made = Platform(tmp_path / "home", template, plugins=find_plugins, **settings)
            return Console(stack.enter_context(made.running()))

        yield make


@pytest.fixture
def console(new_console: NewConsole) -> Console:
    return new_console()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Console]:
    """One platform for all tests of a module in which every request is refused."""
    made = Platform(tmp_path_factory.mktemp("shared") / "home", template, plugins=find_plugins)
    with made.running():
        yield Console(made)
