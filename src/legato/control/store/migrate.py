"""Migrates a store's tables to this version of Legato, or reports another version. Never touches their content.

A new version of the tables: change `schema`, then add a file to ``migrations/versions`` whose ``down_revision`` is the
newest one; a test compares the two.
"""

from __future__ import annotations

from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import text

from legato.control.store.database import Database, let_pause
from legato.core.errors import StoreError, UsageError
from legato.core.version import __version__

_LOCATION: Final = "legato.control.store:migrations"
_LOCK: Final = 0x1E6A70  # Legato's lock number; servers that start together upgrade one after another


def upgrade(database: Database) -> None:
    """Create the tables, or upgrade them to this version, completely or not at all.

    Raises:
        StoreError: the tables are of a newer version.
    """
    config = make_config()
    with database.writing() as connection:
        let_pause(connection)
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise _newer(database, MigrationContext.configure(connection).get_current_revision()) from error


def downgrade(database: Database, revision: str | None) -> tuple[str, str]:
    """Downgrade the tables, completely or not at all. Data that only the newer tables can hold is lost.

    Args:
        database: a database with tables of this version.
        revision: the target. None: the revision before the present one.

    Returns:
        The revisions before and after.

    Raises:
        UsageError: there is no such older version.
        StoreError: the tables are of another version.
    """
    check(database)
    present, *older = find_revisions()
    wanted = revision or (older[0] if older else "")
    if wanted not in older:
        raise UsageError(
            f"Cannot downgrade the store {database.name} to '{wanted}': its tables are of version {present}, and older "
            f"ones are {', '.join(older) or 'none'}. Name one of these."
        )
    config = make_config()
    with database.writing() as connection:
        let_pause(connection)
        config.attributes["connection"] = connection
        command.downgrade(config, wanted)
    return present, wanted


def find_revisions() -> list[str]:
    """Return the revisions that this version of Legato knows, the newest first."""
    return [script.revision for script in ScriptDirectory.from_config(make_config()).walk_revisions()]


def check(database: Database) -> None:
    """Raise StoreError unless the tables are of this version."""
    scripts = ScriptDirectory.from_config(make_config())
    with database.reading() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    if found == scripts.get_current_head():
        return
    known = {script.revision for script in scripts.walk_revisions()}
    if found is not None and found not in known:
        raise _newer(database, found)
    what = "it has no tables" if found is None else f"its tables are of an older version, {found}"
    raise StoreError(f"Cannot use the store {database.name}: {what}. Upgrade it with 'legato server upgrade'.")


def _newer(database: Database, revision: str | None) -> StoreError:
    """Return the error about tables of an unknown revision. The store does not say which release created them."""
    return StoreError(
        f"Cannot use the store {database.name}: a newer version of Legato created its tables (revision {revision}; "
        f"this is Legato {__version__}, with revision {find_revisions()[0]}). Install the newer version, or run "
        "'legato server downgrade' with it."
    )


def make_config() -> Config:
    """Return Alembic's configuration, without a connection."""
    config = Config()
    config.set_main_option("script_location", _LOCATION)
    config.set_main_option("path_separator", "os")
    return config
