"""The store on both databases: every test here runs once on SQLite and once on a real PostgreSQL."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator

import argon2
import pytest
from tests.contract.store.servers import find_programs, run_postgres

from legato.control.credentials import Passwords
from legato.control.store import Store, migrate
from legato.control.store.database import Database

NewUrl = Callable[[], str]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a running server, with {} where the name of a database goes."""
    programs = find_programs()
    if programs is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed; CI must have it")
        pytest.skip("PostgreSQL is not installed: HALF OF THE STORE IS NOT TESTED")
    with run_postgres(programs) as url:
        yield url


@pytest.fixture(scope="session")
def new_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> NewUrl:
    """Copies a store with tables, which is much faster than making them."""
    home = tmp_path_factory.mktemp("stores")
    template = home / "template.db"
    database = Database(f"sqlite:///{template}")
    migrate.upgrade(database)
    database.close()
    numbers = itertools.count()

    def new() -> str:
        path = home / f"{next(numbers)}.db"
        shutil.copyfile(template, path)
        return f"sqlite:///{path}"

    return new


@pytest.fixture(scope="session")
def new_postgres_url(postgres: str) -> NewUrl:
    import psycopg

    def run(statement: str) -> None:
        with psycopg.connect(postgres.format("postgres"), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]

    run("CREATE DATABASE template")
    database = Database(postgres.format("template"))
    migrate.upgrade(database)
    database.close()
    numbers = itertools.count()

    def new() -> str:
        name = f"store{next(numbers)}"
        run(f"CREATE DATABASE {name} TEMPLATE template")
        return postgres.format(name)

    return new


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest) -> NewUrl:
    """Makes URLs of new, empty stores, with their tables."""
    name = "new_sqlite_url" if request.param == "sqlite" else "new_postgres_url"
    made: NewUrl = request.getfixturevalue(name)
    return made


@pytest.fixture
def store(new_url: NewUrl) -> Iterator[Store]:
    with open_quickly(new_url()) as opened:
        yield opened


def open_quickly(url: str) -> Store:
    """Open a store whose passwords are hashed in no time."""
    return Store(Database(url), passwords=Passwords(argon2.PasswordHasher(1, 8, 1)))
