"""Bring a store's tables to this version of Legato, or say that they are of another. Never touches their content.

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

from legato.control.database import Database
from legato.core.errors import StoreError

_LOCATION: Final = "legato.control:migrations"
_LOCK: Final = 0x1E6A70  # any number that is ours; servers that start together upgrade one after another


def upgrade(database: Database) -> None:
    """Make the tables, or bring them to this version; whole, or not at all.

    Raises:
        StoreError: they are of a newer version.
    """
    config = _config()
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise _newer(database) from error


def check(database: Database) -> None:
    """Raise StoreError unless the tables are of this version."""
    scripts = ScriptDirectory.from_config(_config())
    with database.reading() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    if found == scripts.get_current_head():
        return
    known = {script.revision for script in scripts.walk_revisions()}
    if found is not None and found not in known:
        raise _newer(database)
    what = "it has no tables" if found is None else f"its tables are of an older version, {found}"
    raise StoreError(f"Cannot use the store {database.name}: {what}. Upgrade it with 'legato server migrate'.")


def _newer(database: Database) -> StoreError:
    return StoreError(
        f"Cannot use the store {database.name}: its tables were made by a newer version of Legato. Install it."
    )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", _LOCATION)
    config.set_main_option("path_separator", "os")
    return config
