"""Exports the whole store at one moment as lines of text, and loads them into an empty database of either kind.

The lines do not depend on the database: an export of SQLite can be loaded into PostgreSQL, and the other way round.
Each table begins with a line of its name and columns; one line for each row follows. JSON columns are text.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from alembic import command
from alembic.runtime.migration import MigrationContext
from alembic.util.exc import CommandError
from sqlalchemy import JSON, Column, Connection, MetaData, Table, Text, bindparam, cast, func, insert, inspect, select
from sqlalchemy import text as sql

from legato.control.store import migrate
from legato.control.store.database import Database, let_pause
from legato.control.store.rows import reading_bytes
from legato.control.store.schema import metadata
from legato.core.errors import StoreError
from legato.core.places import move_paths

_BATCH: Final = 500
_VERSION_TABLE: Final = "alembic_version"
_WITH_PATHS: Final = {"jobs": ("spec",), "definitions": ("plan",), "experiments": ("data",)}
"""The columns that may hold paths below the home."""
_PLAIN: Final = {"experiments"}
"""Tables whose columns with paths are plain text, not JSON."""


_BASE64: Final = "base64"
"""In place of a value that SQLite keeps as text or JSON and that is no text."""


class _Header(msgspec.Struct, frozen=True):
    table: str
    columns: tuple[str, ...]


def read_revision(database: Database) -> str:
    """Return the revision of a store's tables.

    Raises:
        StoreError: the tables are not of this version, or the database cannot be used.
    """
    migrate.check(database)
    with database.reading() as connection:
        return str(MigrationContext.configure(connection).get_current_revision())


def export(database: Database) -> Iterator[bytes]:
    """Yield the lines of a store with tables of this version, all of one moment, while other transactions continue.

    Raises:
        StoreError: the database cannot be used.
    """
    with database.reading() as connection, reading_bytes(connection):
        let_pause(connection)
        for table in metadata.sorted_tables:
            yield (
                msgspec.json.encode(_Header(str(table.name), tuple(str(column.name) for column in table.columns)))
                + b"\n"
            )
            wanted = [_as_text(column, database) for column in table.columns]
            order = list(table.primary_key.columns)
            found = connection.execution_options(yield_per=_BATCH).execute(select(*wanted).order_by(*order))
            with contextlib.closing(found) as rows:
                for row in rows:
                    cells = [{_BASE64: cell} if isinstance(cell, bytes) else cell for cell in row]
                    yield msgspec.json.encode(cells) + b"\n"


def load(
    database: Database,
    lines: Iterable[bytes],
    *,
    revision: str,
    moves: Mapping[str, str],
    away_s: float,
) -> int:
    """Load the lines of `export` into an empty database, completely or not at all. Its tables are then of this version.

    Args:
        database: a database without tables.
        lines: of the export.
        revision: of the tables that were exported.
        moves: folders that have moved, old → new.
        away_s: seconds since the export. The start times of running attempts are shifted by it, so that time without
            the platform does not count as time with slots.

    Returns:
        The number of rows.

    Raises:
        StoreError: the database is not empty or cannot be used, the export is of a newer version, or is damaged.
    """
    config = migrate.make_config()
    with database.writing() as connection:
        let_pause(connection)
        check_empty(database, connection)
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, revision)
        except CommandError as error:
            raise StoreError(
                f"Cannot restore the store: its tables were of revision {revision}, which this version of Legato does "
                "not know; a newer one made the backup. Install that version."
            ) from error
        num_rows = _Loading(database, connection, moves).load(lines)
        _note_absence(connection, away_s)
        command.upgrade(config, "head")
    return num_rows


def check_empty(database: Database, connection: Connection | None = None) -> None:
    """Raise StoreError unless a database has no tables."""
    if connection is None:
        with database.reading() as own:
            check_empty(database, own)
        return
    found = inspect(connection).get_table_names()
    if found:
        raise StoreError(
            f"Cannot restore into the store {database.name}: it has tables already ({', '.join(sorted(found)[:3])}). "
            "Make an empty database and name it with --database-url."
        )


class _Loading:
    """Writes lines into tables of the exported revision."""

    def __init__(self, database: Database, connection: Connection, moves: Mapping[str, str]) -> None:
        self._database = database
        self._connection = connection
        self._moves = dict(moves)
        found = MetaData()
        found.reflect(connection)
        self._tables = {table.name: table for table in found.sorted_tables if table.name != _VERSION_TABLE}
        self._table: Table | None = None
        self._columns: tuple[str, ...] = ()
        self._rows: list[dict[str, Any]] = []

    def load(self, lines: Iterable[bytes]) -> int:
        self._clear()
        num_rows = 0
        for line in lines:
            found = msgspec.json.decode(line)
            if isinstance(found, dict):
                self._flush()
                self._begin(found)
                continue
            if self._table is None or len(found) != len(self._columns):
                raise StoreError("Cannot restore the store: the backup is damaged. Use another one.")
            row = self._move(dict(zip(self._columns, map(self._read_cell, found), strict=True)))
            self._rows.append({f"new_{name}": value for name, value in row.items()})
            num_rows += 1
            if len(self._rows) >= _BATCH:
                self._flush()
        self._flush()
        if not self._database.is_sqlite:
            self._set_sequences()
        return num_rows

    def _read_cell(self, cell: Any) -> Any:
        if not isinstance(cell, dict):
            return cell
        content = base64.b64decode(cell[_BASE64])
        # PostgreSQL stores valid text only.
        return content if self._database.is_sqlite else content.decode(errors="replace")

    def _clear(self) -> None:
        """Remove the initial rows of new tables; the backup contains them."""
        for table in reversed(self._tables.values()):
            # Only where rows exist: triggers of protected tables refuse the statement itself.
            if self._connection.execute(select(func.count()).select_from(table)).scalar_one():
                self._connection.execute(table.delete())

    def _begin(self, header: dict[str, Any]) -> None:
        name, columns = header.get("table"), header.get("columns")
        if name not in self._tables or not set(columns or [""]) <= set(self._tables[name].columns.keys()):
            raise StoreError(
                f"Cannot restore the store: the backup has a table {name} with columns that "
                "this version of Legato does not know. Install the version that made the backup."
            )
        self._table, self._columns = self._tables[name], tuple(columns or ())

    def _move(self, row: dict[str, Any]) -> dict[str, Any]:
        assert self._table is not None
        for column in _WITH_PATHS.get(self._table.name, ()):
            kept = row.get(column)
            if not isinstance(kept, str) or not self._moves:
                continue
            if self._table.name in _PLAIN:
                row[column] = move_paths(kept, self._moves)
            else:
                with contextlib.suppress(msgspec.DecodeError):  # text that is no JSON stays unchanged
                    row[column] = msgspec.json.encode(move_paths(msgspec.json.decode(kept), self._moves)).decode()
        return row

    def _flush(self) -> None:
        if self._table is None or not self._rows:
            return
        values = {name: self._bind(self._table.columns[name]) for name in self._columns}
        self._connection.execute(insert(self._table).values(values), self._rows)
        self._rows = []

    def _bind(self, column: Column[Any]) -> Any:
        if self._database.is_sqlite:
            # SQLite stores JSON as text, and also values of a wrong type from the exported store.
            return bindparam(f"new_{column.name}", type_=Text())
        if not isinstance(column.type, JSON):
            return bindparam(f"new_{column.name}", type_=column.type)
        return cast(bindparam(f"new_{column.name}", type_=Text()), JSON)

    def _set_sequences(self) -> None:
        """Set PostgreSQL's sequences above the ids of the written rows."""
        for table in self._tables.values():
            for column in table.primary_key.columns:
                sequence = self._connection.execute(
                    select(func.pg_get_serial_sequence(f'"{table.name}"', column.name))
                ).scalar_one()
                highest = self._connection.execute(select(func.max(column))).scalar_one() if sequence else None
                if highest is not None:
                    self._connection.execute(select(func.setval(sequence, highest)))


def _as_text(column: Column[Any], database: Database) -> Any:
    """Return the expression for a column; JSON as text, so that NULL and the JSON ``null`` stay different."""
    if not isinstance(column.type, JSON):
        return column
    return sql(f'"{column.table.name}"."{column.name}"') if database.is_sqlite else cast(column, Text)


def _note_absence(connection: Connection, away_s: float) -> None:
    """Shift the start times of running attempts by the time in which nothing ran."""
    for statement in (
        "UPDATE attempts SET started_at = started_at + :away WHERE ended_at IS NULL",
        "UPDATE allocations SET since = since + :away WHERE until IS NULL",
    ):
        connection.execute(sql(statement), {"away": max(away_s, 0.0)})
    # What was used before the export has been counted already.
    counted = "UPDATE counters SET value = value + :away WHERE name = 'usage' AND value > 0"
    connection.execute(sql(counted), {"away": int(max(away_s, 0.0) * 1000)})
