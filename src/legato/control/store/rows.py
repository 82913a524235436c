"""Reads rows of the store as records. A row that this release cannot read costs that row alone, never the whole query.

Such a row was edited by hand, is damaged, or was written by a newer release. It is not changed. If its record has a
field for a reason, the record has the readable fields and the reason why the row cannot be read. Otherwise the row is
left out, and the log says why.
"""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
import structlog
from sqlalchemy import Boolean, ColumnElement, Connection, Executable, Select, case
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from legato.control.store.database import Undecodable
from legato.core.errors import UnreadableRow
from legato.system.decoding import convert

T = TypeVar("T")
R = TypeVar("R")

_TOLD_IN: Final = ("reason", "unusable_reason")
_EMPTY: Final[tuple[Any, ...]] = (None, "", 0, False, {}, ())
_MAX_WHY: Final = 200

_log = structlog.get_logger(__name__)


class Unreadable(NamedTuple):
    """A row that cannot be read. ``record``: its readable fields; all others are empty."""

    record: Any
    why: str


def read_all(connection: Connection, statement: Select[Any], kind: type[T]) -> tuple[T, ...]:
    """Run a query and return its rows as records.

    A row that cannot be read becomes a record whose reason says why, or is left out if its record has no reason.
    """
    read = (_show(found, kind) for found in read_each(connection, statement, kind))
    return tuple(record for record in read if record is not None)


def read_one(connection: Connection, statement: Select[Any], kind: type[T]) -> T | None:
    """Run a query and return its first row as a record, None if there is none.

    Raises:
        UnreadableRow: the row cannot be read, and its record has no field for the reason.
    """
    found = read_each(connection, statement.limit(1), kind)
    if not found:
        return None
    shown = _show(found[0], kind)
    if shown is None:
        assert isinstance(found[0], Unreadable)
        raise UnreadableRow(f"{found[0].why[0].upper()}{found[0].why[1:]}.")
    return shown


def read_each(connection: Connection, statement: Select[Any], kind: type[T]) -> list[T | Unreadable]:
    """Run a query and return its rows in order, each as a record or as `Unreadable` with the reason."""
    rows = fetch_each(connection, statement)
    try:
        return [convert(row, kind) for row in rows]
    except msgspec.ValidationError:
        table = str(statement.get_final_froms()[0])
        return [convert_row(row, kind, table) for row in rows]


def convert_row(columns: Mapping[Any, Any], kind: type[T], table: str) -> T | Unreadable:
    """Return a row as a record, or the reason why it cannot be read, which is logged once."""
    row = {str(name): value for name, value in columns.items()}
    try:
        return convert(row, kind)
    except msgspec.ValidationError as whole:
        readable, faults = {}, []
        for field in _fields_of(kind):
            try:
                readable[field.name] = convert(row[field.name], field.type)
            except KeyError:
                continue
            except msgspec.ValidationError as error:
                readable[field.name] = _empty(field.type)
                value = row[field.name]
                what = value.why if isinstance(value, Undecodable) else f"has a wrong value ({error})"
                faults.append(f"column '{field.name}' {what}")
        key = next((str(row[name]) for name in ("id", "seq", "name") if name in row), "?")
        why = describe_unreadable(table, key, " and ".join(faults) or str(whole))
        _warn(why)
        return Unreadable(kind(**readable), why)


class _IsJSON(FunctionElement[bool]):
    """Whether the text of a column is JSON. On PostgreSQL it always is."""

    type = Boolean()
    name = "is_json"
    inherit_cache = True


@compiles(_IsJSON)
def _always(_element: object, _compiler: object, **_options: Any) -> str:
    return "TRUE"


@compiles(_IsJSON, "sqlite")
def _ask_sqlite(element: _IsJSON, compiler: Any, **options: Any) -> str:
    return f"json_valid({compiler.process(element.clauses, **options)})"


def at(column: ColumnElement[Any], key: str | tuple[str | int, ...]) -> Any:
    """Return the JSON value of a column under a key, or under several keys and places of lists, the outermost first.

    Excludes other text, which fails SQLite's query.
    """
    return case((_IsJSON(column), column), else_=None)[key]


def describe_unreadable(table: str, key: str, what: str) -> str:
    """Return why a row is left out, and what to do, as part of a sentence."""
    return (
        f"row '{key[:100]}' of the table {table} cannot be read: {what[:_MAX_WHY]}. Legato does not "
        "change it. An administrator must correct it, restore a backup, or install the release that wrote it"
    )


def take(found: T | Unreadable, doing: str) -> T:
    """Return a record.

    Args:
        found: the record, or why it cannot be read.
        doing: the action that fails without the record, with the record's name.

    Raises:
        UnreadableRow: the row could not be read.
    """
    if isinstance(found, Unreadable):
        raise UnreadableRow(f"Cannot {doing}: its {found.why}.")
    return found


def fetch(connection: Connection, statement: Executable) -> Sequence[Any]:
    """Run a query and return its rows. Bytes that are no text become question marks."""
    try:
        return connection.execute(statement).all()
    except OperationalError as error:
        _check_is_text(error)
        with_marks = functools.partial(str, encoding="utf-8", errors="replace")
        return _with_text(connection, with_marks, lambda: connection.execute(statement).all())


def fetch_each(connection: Connection, statement: Executable) -> list[dict[str, Any]]:
    """Run a query whose rows become records. A value that is no text becomes `Undecodable`.

    A dict becomes a record in an eighth of the time that a `RowMapping` takes.
    """

    def read() -> list[dict[str, Any]]:
        result = connection.execute(statement)
        names = [str(name) for name in result.keys()]  # noqa: SIM118 -- a Result is no dict
        return [dict(zip(names, row, strict=True)) for row in result.all()]

    try:
        return read()
    except OperationalError as error:
        _check_is_text(error)
        return _with_text(connection, _decode, read)


@contextlib.contextmanager
def reading_bytes(connection: Connection) -> Iterator[None]:
    """During the block, read values that are no text as bytes, if the database can hold them."""
    raw: Any = connection.connection.dbapi_connection
    if connection.dialect.name != "sqlite":
        yield
        return
    raw.text_factory = _decode_or_keep
    try:
        yield
    finally:
        raw.text_factory = str


def _decode_or_keep(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _check_is_text(error: OperationalError) -> None:
    if "decode to UTF-8" not in str(error.orig):
        raise error


def _with_text(connection: Connection, decode: Callable[[bytes], object], read: Callable[[], R]) -> R:
    """Read with another conversion of SQLite's bytes to text. No other thread uses this connection meanwhile."""
    raw: Any = connection.connection.dbapi_connection
    raw.text_factory = decode
    try:
        return read()
    finally:
        raw.text_factory = str


def _decode(content: bytes) -> str | Undecodable:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return Undecodable("is no text")


def _show(found: T | Unreadable, kind: type[T]) -> T | None:
    if not isinstance(found, Unreadable):
        return found
    names = {field.name for field in _fields_of(kind)}
    shown: Any = found.record
    for name in _TOLD_IN:
        if name in names:
            return cast(T, msgspec.structs.replace(shown, **{name: found.why}))
    if "detail" in names:
        return cast(T, msgspec.structs.replace(shown, detail={"unreadable": found.why}))
    return None


def _fields_of(kind: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _empty(kind: Any) -> Any:
    """Return the emptiest value of a column's type."""
    for value in _EMPTY:
        try:
            return convert(value, kind)
        except msgspec.ValidationError:
            continue
    assert issubclass(kind, enum.Enum)
    return next(iter(kind))


@functools.lru_cache(maxsize=1024)
def _warn(why: str) -> None:
    _log.error("a row of the store cannot be read", error=why)
