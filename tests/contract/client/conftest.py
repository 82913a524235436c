"""Clients of a real server: its application and a store. The tests write what a control loop would write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.server.platform import Platform, make_template

from legato.client.client import Client
from legato.client.connection import Line
from legato.client.servers import Server

NewClient = Callable[[str], Client]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "legato.db")


@pytest.fixture
def platform(tmp_path: Path, template: Path) -> Iterator[Platform]:
    with Platform(tmp_path / "home", template).running() as made:
        yield made


@pytest.fixture
def client_of(platform: Platform) -> Iterator[NewClient]:
    """Makes clients of several users."""
    made = []

    def make(who: str) -> Client:
        line = Line(Server(url=platform.url, token=platform.secrets[who]), patience_s=5.0)
        made.append(line)
        return Client.on(line)

    yield make
    for line in made:
        line.close()


@pytest.fixture
def ann(client_of: NewClient) -> Client:
    return client_of("ann")


@pytest.fixture
def admin(client_of: NewClient) -> Client:
    return client_of("admin")
