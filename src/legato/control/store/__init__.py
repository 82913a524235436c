"""The store: all data of the platform, and the one interface to it. Only its modules use SQL.

Each public function of a module is one transaction, which is done completely or not at all. Functions take the time as
an argument, in seconds since 1970, and return records. The tables are in `schema`. Other packages import from here
only, and from `database`, `export` and `migrate`, with which a server opens, upgrades and backs up a store.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from legato.control.credentials import Passwords
from legato.control.store import migrate
from legato.control.store.access_requests import AccessRequests
from legato.control.store.accounts import Accounts
from legato.control.store.agents import Agents
from legato.control.store.database import Database
from legato.control.store.definitions import Definitions
from legato.control.store.events import Audit, Events
from legato.control.store.experiments import Experiments
from legato.control.store.history import History, Run
from legato.control.store.idempotency import Requests
from legato.control.store.jobs import Jobs
from legato.control.store.loop import Loop
from legato.control.store.pilots import Pilots
from legato.control.store.pool import Slots
from legato.control.store.projects import KIND as PROJECT
from legato.control.store.projects import LEAVER, Projects, check_may_add
from legato.control.store.queues import QUEUE, Queues, check_queue_numbers
from legato.control.store.retention import Purged, Retention
from legato.control.store.submit import check_is_no_test, check_labels, check_new_job
from legato.control.store.sweeps import Sweeps
from legato.control.store.tokens import CheckedToken, Tokens
from legato.control.store.uploads import Uploads, check_sha256, missing_code
from legato.control.store.usage import KEPT_S, Usage, Used
from legato.control.store.webhooks import MAX_PENDING, MAX_WEBHOOKS, Webhooks
from legato.core.errors import StoreError

__all__ = [
    "KEPT_S",
    "LEAVER",
    "MAX_PENDING",
    "MAX_WEBHOOKS",
    "PROJECT",
    "QUEUE",
    "CheckedToken",
    "Loop",
    "Purged",
    "Run",
    "Store",
    "Used",
    "check_is_no_test",
    "check_labels",
    "check_may_add",
    "check_new_job",
    "check_queue_numbers",
    "check_sha256",
    "missing_code",
    "open_store",
]


class Store:
    """An open store, for any number of threads.

    Args:
        database: a database that has its tables; see `open_store`.
        request_limit_s: after so many seconds without an answer, another server may answer a request with an
            idempotency key.
        passwords: hashes passwords.
        random_bits: returns a random number of so many bits; for ids and tokens.
    """

    def __init__(
        self,
        database: Database,
        *,
        request_limit_s: float = 60.0,
        passwords: Passwords | None = None,
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        self._database = database
        self.jobs = Jobs(database, random_bits, request_limit_s)
        self.projects = Projects(database, random_bits)
        self.access_requests = AccessRequests(database, random_bits)
        self.definitions = Definitions(database, random_bits)
        self.experiments = Experiments(database, random_bits)
        self.sweeps = Sweeps(database, random_bits, request_limit_s)
        self.queues = Queues(database)
        self.pool = Slots(database)
        self.agents = Agents(database, random_bits)
        self.pilots = Pilots(database, random_bits)
        self.history = History(database)
        self.loop = Loop(database)
        self.accounts = Accounts(database, passwords or Passwords(), random_bits)
        self.tokens = Tokens(database, random_bits)
        self.uploads = Uploads(database)
        self.requests = Requests(database)
        self.events = Events(database)
        self.audit = Audit(database)
        self.retention = Retention(database)
        self.usage = Usage(database)
        self.webhooks = Webhooks(database, random_bits)

    @property
    def num_errors(self) -> int:
        """Number of failures of the database since it was opened."""
        return self._database.num_errors

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(url: str, *, request_limit_s: float = 60.0, passwords: Passwords | None = None) -> Store:
    """Open the store at a URL. Creates an SQLite store, or upgrades it to this version.

    Does not upgrade a PostgreSQL store: several servers share it, so the operator chooses when its tables change
    (`migrate.upgrade`).

    Raises:
        UsageError: the URL cannot be used.
        StoreError: the database cannot be used, or its tables are of another version.
    """
    database = Database(url)
    try:
        _make_directory(url)
        if database.is_sqlite:
            migrate.upgrade(database)
        else:
            migrate.check(database)
        return Store(database, request_limit_s=request_limit_s, passwords=passwords)
    except BaseException:
        database.close()
        raise


def _make_directory(url: str) -> None:
    kind, _, path = url.partition(":///")
    if kind == "sqlite" and path:
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Only its user may read it: it holds hashes of passwords and tokens.
            file.touch(mode=0o600)
        except OSError as error:
            raise StoreError(
                f"Cannot make the store {file}: {error.strerror or error}. Make the directory writable for this user, "
                "or name another "
                "file in the setting database_url."
            ) from error
