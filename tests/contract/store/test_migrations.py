"""Migrations make the tables that the schema says, on both databases."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import structlog
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import CheckConstraint, inspect, text
from sqlalchemy.exc import DBAPIError
from tests.contract.store.conftest import NewUrl, open_quickly

from legato.control.store import Store, migrate, open_store
from legato.control.store.database import Database
from legato.control.store.schema import metadata
from legato.core.errors import StoreError, UsageError


def test_migrations_and_schema_agree(new_url: NewUrl) -> None:
    database = Database(new_url())
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        # What autogenerate does not compare.
        inspected = inspect(connection)
        for table in metadata.sorted_tables:
            found = inspected.get_indexes(table.name)
            made = {index["name"]: index for index in found if not index.get("duplicates_constraint")}
            assert {index.name: index.unique for index in table.indexes} == {
                name: bool(index["unique"]) for name, index in made.items()
            }
            assert {check["name"] for check in inspected.get_check_constraints(table.name)} == {
                str(item.name) for item in table.constraints if isinstance(item, CheckConstraint)
            }
            for key in inspected.get_foreign_keys(table.name):
                (want,) = (item for item in table.foreign_key_constraints if item.name == key["name"])
                assert key["options"].get("ondelete") == want.ondelete
    database.close()


def test_the_index_of_open_slots_is_partial(new_url: NewUrl) -> None:
    database = Database(new_url())
    catalogue = "sqlite_master WHERE name" if database.is_sqlite else "pg_indexes WHERE indexname"
    column = "sql" if database.is_sqlite else "indexdef"
    with database.reading() as connection:
        made = connection.execute(text(f"SELECT {column} FROM {catalogue} = 'uq_allocations_open_slot'")).scalar_one()
    assert "UNIQUE" in made
    assert "until IS NULL" in made
    database.close()


def test_downgrade_leaves_nothing(new_url: NewUrl) -> None:
    database = Database(new_url())
    with database.writing() as connection:
        config = migrate.make_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with database.reading() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    with pytest.raises(StoreError, match="it has no tables"):
        migrate.check(database)
    migrate.upgrade(database)
    migrate.check(database)
    database.close()


def test_a_newer_store_is_refused(new_url: NewUrl) -> None:
    url = new_url()
    database = Database(url)
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for refused in (migrate.check, migrate.upgrade):
        with pytest.raises(StoreError, match=r"newer version of Legato .*revision 9999; this is Legato"):
            refused(database)
    database.close()
    with pytest.raises(StoreError):
        open_store(url)


def test_many_servers_upgrade_at_once(new_url: NewUrl) -> None:
    url = new_url()
    database = Database(url)
    with database.writing() as connection:
        config = migrate.make_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    errors: list[Exception] = []

    def start() -> None:
        own = Database(url)
        try:
            migrate.upgrade(own)
        except Exception as error:
            errors.append(error)
        own.close()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    migrate.check(database)
    database.close()


def test_the_audit_log_is_append_only(new_url: NewUrl) -> None:
    url = new_url()
    with open_quickly(url) as store:
        store.audit.append("ann", "login", "ann", 1.0)
        database = Database(url)
        for change in ("UPDATE audit_log SET who = 'ben'", "DELETE FROM audit_log"):
            with pytest.raises((DBAPIError, StoreError), match="append-only"), database.writing() as connection:
                connection.execute(text(change))
        database.close()
        assert [entry.who for entry in store.audit.read_before()] == ["ann"]


def test_opening_makes_an_sqlite_store_for_its_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "legato.db"
    with open_store(f"sqlite:///{file}") as store:
        assert [queue.name for queue in store.queues.list()] == ["default"]
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "url", ["mysql://a/b", "sqlite://", "sqlite:///:memory:", "nothing", "postgresql://host:port/x"]
)
def test_other_urls_are_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="Cannot open the store"):
        open_store(url)
    assert list(tmp_path.iterdir()) == [], "what is refused leaves nothing behind"


def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"Cannot make the store .*/legato\.db: (File exists|Not a directory)"):
        open_store(f"sqlite:///{tmp_path}/file/legato.db")


def test_a_missing_database_is_reported_without_the_password() -> None:
    with pytest.raises(StoreError, match="Cannot use the store") as caught:
        open_store("postgresql://ann:geheim@127.0.0.1:1/legato")
    assert "geheim" not in str(caught.value)


def test_tokens_without_an_end_get_one(new_url: NewUrl) -> None:
    database = Database(new_url())
    with database.writing() as connection:
        config = migrate.make_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0004")
        connection.execute(text("INSERT INTO users (name, role, created_at) VALUES ('ann', 'user', 1)"))
        for number, (name, expires_at) in enumerate(
            [("ci", "NULL"), ("soon", "999999"), ("login", "43201"), ("link", "3601"), ("console", "604801")]
        ):
            connection.execute(
                text(
                    'INSERT INTO tokens (id, "user", name, role, secret_sha256, created_at, expires_at) '
                    f"VALUES ('t-{number}', 'ann', '{name}', 'user', '{number}', 1, {expires_at})"
                )
            )
    before = time.time()
    with structlog.testing.capture_logs() as log:
        migrate.upgrade(database)
    assert next(line for line in log if line["log_level"] == "warning")["tokens"] == '["ann/ci (t-0)"]'
    with database.reading() as connection:
        found = {row.name: row.kind for row in connection.execute(text("SELECT name, kind FROM tokens"))}
        ends = connection.execute(text("SELECT expires_at FROM tokens WHERE name = 'ci'")).scalar_one()
        kept = connection.execute(text("SELECT expires_at FROM tokens WHERE name = 'console'")).scalar_one()
        audit = connection.execute(text("SELECT action, target FROM audit_log")).all()
    assert found == {"ci": "token", "soon": "token", "login": "session", "link": "link", "console": "session"}
    assert kept == 604801, "a browser's session lasts as long as it did"
    assert 0 <= ends - before - 90 * 86_400 < 600
    assert [tuple(line) for line in audit] == [("token.expire", "t-0")]
    database.close()


def test_pilots_of_an_earlier_release_are_for_the_jobs_of_all_users(new_url: NewUrl) -> None:
    database = Database(new_url())
    token = Store(database).pilots.add("slurm", "slurm-1", 1.0)
    Store(database).agents.join(token, "slurm-1", "one", 1.0)
    migrate.downgrade(database, "0014")
    migrate.upgrade(database)
    (pilot,), (agent,) = Store(database).pilots.list(), Store(database).agents.list()
    assert (pilot.node, pilot.identity, pilot.owner, pilot.uid) == ("slurm-1", "one", None, None)
    assert (agent.cluster, agent.owner) == ("slurm", None)
    database.close()
