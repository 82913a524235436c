"""A store as lines of text, and back: on each database what the other one gave."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import inspect
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ANN, NOW, make_job, make_people, make_pool, start, write

from legato.api.jobs import Progress
from legato.control.store import Store, export, migrate
from legato.control.store.database import Database
from legato.core.errors import StoreError, UsageError

HOME, ELSEWHERE = "/srv/legato", "/mnt/new"
TABLES = ("users", "jobs", "attempts", "allocations", "nodes", "slots", "queues", "audit_log", "events", "counters")
HEAD = migrate.find_revisions()[0]
_numbers = itertools.count()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables, of either kind."""
    url = f"sqlite:///{tmp_path}/restored.db"
    if request.param == "postgresql":
        import psycopg

        server = request.getfixturevalue("postgres")
        name = f"restored{next(_numbers)}"
        with psycopg.connect(server.format("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        url = server.format(name)
    database = Database(url)
    yield database
    database.close()


def fill(store: Store) -> str:
    """Put something of many kinds into a store; returns a job that runs."""
    make_people(store)
    spec = {"program": ["train.py", f"--data={HOME}/data", "ä"], "directory": f"{HOME}/jobs/x", "n": 1.5}
    jobs = [store.jobs.submit(make_job(spec=spec, labels={"a": "b"}), ANN, NOW + number).job for number in range(3)]
    lease, slots = make_pool(store, 4)
    running = start(store, lease.fence, jobs[0], tuple(slots[:2]), NOW + 10)
    write(store, lease.fence, running, NOW + 11, progress=Progress(time=NOW, step=7))
    store.audit.append("ann", "login", "ann", NOW)
    return running.id


def lines_of(url: str) -> list[bytes]:
    database = Database(url)
    try:
        return list(export.export(database))
    finally:
        database.close()


LATER_COUNTERS = {b'"quiet"', b'"usage"', b'"jobs_failed"', b'"jobs_stopped"', b'"jobs_succeeded"'}


def cut(lines: list[bytes], tables: dict[str, set[str]]) -> list[bytes]:
    """Leave of an export what an older version would have exported: these tables and columns."""
    found: list[bytes] = []
    kept: list[int] = []
    for line in lines:
        read = msgspec.json.decode(line)
        if isinstance(read, dict):
            columns = tables.get(read["table"], set())
            kept = [place for place, name in enumerate(read["columns"]) if name in columns]
            read["columns"] = [read["columns"][place] for place in kept]
        if kept and not LATER_COUNTERS & set(line.strip(b"[]\n").split(b",")):
            found.append(msgspec.json.encode(read if isinstance(read, dict) else [read[place] for place in kept]))
    return found


def load(database: Database, lines: list[bytes], revision: str = HEAD, away_s: float = 0.0) -> int:
    return export.load(database, lines, revision=revision, moves={HOME: ELSEWHERE}, away_s=away_s)


def test_a_store_comes_back_as_it_was_whatever_the_database(new_url: NewUrl, empty: Database) -> None:
    url = new_url()
    with open_quickly(url) as store:
        job = fill(store)
    lines = lines_of(url)
    num_rows = load(empty, lines)
    assert num_rows == sum(not line.startswith(b"{") for line in lines) > 20
    migrate.check(empty)
    there = [line.replace(ELSEWHERE.encode(), HOME.encode()) for line in export.export(empty)]
    assert there == lines
    restored = Store(empty)
    found = restored.jobs.get(job)
    assert (found.stage, found.attempt) == ("running", 1)
    spec = restored.jobs.read_spec(job)
    assert spec["directory"] == f"{ELSEWHERE}/jobs/x"
    assert spec["program"] == ["train.py", f"--data={ELSEWHERE}/data", "ä"]
    # New rows are numbered behind those that were restored, and what guards the log of audits is there.
    restored.audit.append("ann", "login", "ann", NOW)
    assert len(list(restored.audit.read_before())) > 1
    restored.jobs.submit(make_job(), ANN, NOW + 20)


def test_time_in_which_nothing_ran_is_not_held(new_url: NewUrl, empty: Database) -> None:
    url = new_url()
    with open_quickly(url) as store:
        job = fill(store)
        held_s = store.loop.read_held_s(job, NOW + 100)
    load(empty, lines_of(url), away_s=5000)
    assert Store(empty).loop.read_held_s(job, NOW + 5100) == held_s == 90


def test_an_older_store_is_brought_to_this_version(new_url: NewUrl, empty: Database) -> None:
    url = new_url()
    with open_quickly(url) as store:
        fill(store)
    database = Database(url)
    migrate.downgrade(database, "0003")
    with database.reading() as connection:
        tables = {name: {column["name"] for column in inspect(connection).get_columns(name)} for name in TABLES}
    migrate.upgrade(database)
    database.close()
    load(empty, cut(lines_of(url), tables), revision="0003")
    migrate.check(empty)
    assert any(b'"quiet"' in line for line in export.export(empty))


def test_what_cannot_be_restored_is_refused_and_leaves_nothing(new_url: NewUrl, empty: Database) -> None:
    url = new_url()
    lines = lines_of(url)
    with pytest.raises(StoreError, match="a newer one made the backup"):
        load(empty, lines, revision="9999")
    with pytest.raises(StoreError, match="is damaged"):
        load(empty, [*lines, b"[1]\n"])
    with pytest.raises(StoreError, match="the backup has a table planets"):
        load(empty, [b'{"table": "planets", "columns": ["name"]}\n'])
    export.check_empty(empty)
    own = Database(url)
    with pytest.raises(StoreError, match="it has tables already"):
        load(own, lines)
    own.close()
    assert lines_of(url) == lines


def test_an_export_is_of_one_moment_while_others_write(new_url: NewUrl) -> None:
    url = new_url()
    with open_quickly(url) as store:
        fill(store)
        before = lines_of(url)
        database = Database(url)
        lines = export.export(database)
        found = [next(lines), next(lines)]
        writing = threading.Thread(target=lambda: store.jobs.submit(make_job(), ANN, NOW + 30))
        writing.start()
        writing.join()
        found += lines
        database.close()
    assert found == before, "what came meanwhile is not in it"
    assert len(lines_of(url)) > len(before)


def test_tables_go_back_to_an_older_version_and_forth(new_url: NewUrl) -> None:
    url = new_url()
    with open_quickly(url) as store:
        fill(store)
    database = Database(url)
    older = migrate.find_revisions()[1]
    with pytest.raises(UsageError, match="Name one of these"):
        migrate.downgrade(database, "9999")
    assert migrate.downgrade(database, None) == (HEAD, older)
    with pytest.raises(StoreError, match="legato server upgrade"):
        migrate.check(database)
    migrate.upgrade(database)
    assert migrate.downgrade(database, "0002") == (HEAD, "0002")
    migrate.upgrade(database)
    migrate.check(database)
    database.close()
    with open_quickly(url) as store:
        assert [queue.name for queue in store.queues.list()] == ["default"]
