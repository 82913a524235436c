"""The connection to the store's database: SQLite or PostgreSQL, and what a transaction is on each. Knows no table.

SQLite: one writer at a time, by ``BEGIN IMMEDIATE``; readers never wait. PostgreSQL: row locks. A reader sees
one moment on both.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as NoneFreeError

from legato.core.errors import StoreError, UsageError

_BUSY_LIMIT_S: Final = 30.0  # how long a writer waits for writers of other processes
_MIN_SQLITE: Final = (3, 35)  # the first version with RETURNING
_POOL: Final[dict[str, Any]] = {"pool_size": 8, "max_overflow": 24, "pool_timeout": _BUSY_LIMIT_S}

# libpq: a server that is cut off from the database must notice that, instead of waiting for many minutes.
_POSTGRES_LIMITS: Final = {
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}

# PostgreSQL: if a server crashes in the middle of a transaction, what it has locked (such as the row of the lease) must
# become free for other servers. By default PostgreSQL keeps a connection to a lost machine for two hours, and the
# transaction of a stopped process without end.
IDLE_LIMIT_S: Final = 15.0  # a transaction may wait for its own program for so long
_SESSION_LIMITS: Final = {
    "tcp_user_timeout": 10_000,
    "tcp_keepalives_idle": 5,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3,
}

# A submission that was acknowledged must outlive a power failure: each commit is on the disk before it is answered.
# synchronous=FULL would do so with one sync per commit, while it holds the writers' lock. With NORMAL, `WalSync` syncs
# outside of the lock, once for all waiting commits. The promise is the same, and no writer waits for another's sync.
_PRAGMAS: Final = (
    f"busy_timeout={int(_BUSY_LIMIT_S * 1000)}",
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "foreign_keys=ON",
    "temp_store=MEMORY",
)


class Database:
    """An open database.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql://…``.

    Attributes:
        num_errors: number of failures.

    Raises:
        UsageError: the URL names another kind of database, or is invalid.
    """

    def __init__(self, url: str) -> None:
        self._engine = _make_engine(url)
        self.name = self._engine.url.render_as_string(hide_password=True)
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        # Threads of this process queue here instead of polling SQLite's lock: no thread starves.
        self._turn: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._wal: WalSync | None = None
        if self.is_sqlite:
            self._turn = threading.Lock()
            self._wal = WalSync(Path(f"{self._engine.url.database}-wal"))
            self._readers = self._engine
        else:
            self._readers = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self.num_errors = 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a reading transaction: all reads in it see the same moment.

        Raises:
            StoreError: the database cannot be used.
        """
        with self._translating_errors(), self._readers.begin() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN")
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a writing transaction. When the block ends, all is written and on disk; after an error, nothing is.

        Raises:
            StoreError: the database cannot be used.
        """
        with self._translating_errors():
            with self._turn, self._engine.begin() as connection:
                if self.is_sqlite:
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
            if self._wal is not None:
                self._wal.sync()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except NoneFreeError as error:
            self.num_errors += 1
            raise StoreError(
                f"Cannot use the store {self.name}: no connection to it became free for {_BUSY_LIMIT_S:g} s. It is "
                "overloaded. Try again later, and check whether its disk or the database is slow."
            ) from error
        except (DatabaseError, InterfaceError, SyncError) as error:
            if isinstance(error, DatabaseError) and not _is_failure(error):
                raise  # the data violates a constraint: the caller knows what that means
            self.num_errors += 1
            why = str(error.orig if isinstance(error, DBAPIError) else error).strip().partition("\n")[0].rstrip(".")
            raise StoreError(
                f"Cannot use the store {self.name}: {why}. Check that the database runs, that the setting database_url "
                "is right, and that its disk is not full."
            ) from error


def let_pause(connection: Connection) -> None:
    """Let a transaction wait for its own program without a limit, for one that reads or writes a user's stream."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")


def _is_failure(error: DatabaseError) -> bool:
    """Return whether the database failed, and not a statement."""
    return error.connection_invalidated or type(error) in (DatabaseError, OperationalError)


class Undecodable(NamedTuple):
    """Describes why a column is no JSON or no text. Replaces the value."""

    why: str


def _decode_json(content: bytes | str) -> Any:
    # An error here would fail the whole query with all its other rows.
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, TypeError, RecursionError) as error:
        return Undecodable(f"is no JSON ({error})")


class SyncError(Exception):
    """The disk refused a sync."""


class WalSync:
    """Syncs commits of an SQLite file to the disk, with one sync for all waiting commits.

    Args:
        path: the write-ahead log. SQLite locks the other files, never this one, so it may be opened beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._num_asked = 0
        self._num_synced = 0
        self._is_syncing = False
        self._inode: int | None = None

    def sync(self) -> None:
        """Wait until all commits before this call are on disk.

        Raises:
            SyncError: the disk refuses; the commit may be lost in a power failure.
        """
        with self._changed:
            self._num_asked += 1
            mine = self._num_asked
            self._changed.wait_for(lambda: self._num_synced >= mine or not self._is_syncing)
            if self._num_synced >= mine:
                return
            self._is_syncing, upto = True, self._num_asked
        try:
            self._sync_file()
        except OSError as error:
            raise SyncError(str(error)) from error
        else:
            with self._changed:
                self._num_synced = max(self._num_synced, upto)
        finally:
            with self._changed:
                self._is_syncing = False
                self._changed.notify_all()

    def _sync_file(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # SQLite has moved all content into the database, and has synced that
        try:
            os.fdatasync(descriptor)
            inode = os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)
        if inode != self._inode:
            # The file is new: its folder must be synced as well.
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            self._inode = inode


def _make_engine(url: str) -> Engine:
    kind, _, rest = url.partition("://")
    driver = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}.get(kind)
    if driver is None or rest in ("", "/", "/:memory:"):
        raise UsageError(
            f"Cannot open the store: database_url begins with '{kind}://'. Give sqlite:///FILE or "
            "postgresql://USER@HOST/NAME."
        )
    options: dict[str, Any] = {
        **_POOL,
        "hide_parameters": True,  # an error may be logged, and parameters contain secrets
        "json_serializer": lambda value: msgspec.json.encode(value).decode(),
        "json_deserializer": _decode_json,
    }
    try:
        if driver == "sqlite":
            _check_sqlite()
            engine = sqlalchemy.create_engine(f"{driver}://{rest}", **options)
            _prepare_sqlite(engine)
            return engine
        # Tests a connection before use, because the database may have closed it.
        engine = sqlalchemy.create_engine(f"{driver}://{rest}", pool_pre_ping=True, **options)
        limits = {name: value for name, value in _POSTGRES_LIMITS.items() if name not in engine.url.query}
        event.listen(engine, "do_connect", lambda _dialect, _record, _words, given: given.update(limits))
        event.listen(engine, "connect", _limit_session)
        return engine
    except (ArgumentError, ValueError) as error:
        raise UsageError(f"Cannot open the store: database_url is not the URL of a database: {error}.") from None
    except (ModuleNotFoundError, NoSuchModuleError):
        raise UsageError(
            "Cannot open the store: the driver for PostgreSQL is not installed. Install legato[postgres]."
        ) from None


def _limit_session(connection: Any, _record: Any) -> None:
    limits = {**_SESSION_LIMITS, "idle_in_transaction_session_timeout": int(IDLE_LIMIT_S * 1000)}
    # Not as options of the connection: poolers such as PgBouncer refuse these.
    connection.execute("; ".join(f"SET {name} = {value}" for name, value in limits.items()))
    connection.commit()


def _check_sqlite() -> None:
    if sqlite3.sqlite_version_info < _MIN_SQLITE:
        raise UsageError(
            f"Cannot open the store: this Python has SQLite {sqlite3.sqlite_version}, and 3.35 or newer is needed. Use "
            "another build of Python, or PostgreSQL."
        )


def _prepare_sqlite(engine: Engine) -> None:
    def connect(connection: Any, _record: Any) -> None:
        # `Database` begins transactions. The driver would begin them late and end them at a CREATE.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    # A listener of the engine's statements or transactions would cost a tenth of the time of each statement.
    event.listen(engine, "connect", connect)
