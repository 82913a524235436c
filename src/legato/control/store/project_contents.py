"""The common base of training definitions and experiments in the store: both belong to a project and have a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlalchemy import Connection, Select, Table, delete, func, select, update

from legato.control.display_names import check_description, check_title
from legato.control.ids import make_id
from legato.control.roles import Asker, check_may_act
from legato.control.store.database import Database
from legato.control.store.projects import check_may_add, check_version, lock_project, record_action
from legato.control.store.rows import Unreadable, take
from legato.control.store.schema import jobs, projects
from legato.control.store.transactions import Transaction, writing
from legato.control.store.visibility import sees_project
from legato.core.errors import Conflict, NotFound


class NewContent(Protocol):
    """The common fields of a new definition or experiment."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


class Content(Protocol):
    """The common fields of a stored definition or experiment."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def created_by(self) -> str: ...
    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Content)


class ProjectContents(Generic[R]):
    """One kind of content of projects.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits; for ids.

    Attributes:
        _table: table of this kind.
        _kind: its name in the audit log, and its column in the table of jobs.
        _title: its name in messages.
        _command: command that lists this kind.
        _prefix: prefix of its ids.
    """

    _table: ClassVar[Table]
    _kind: ClassVar[str]
    _title: ClassVar[str]
    _command: ClassVar[str]
    _prefix: ClassVar[str]

    def __init__(self, database: Database, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._random_bits = random_bits

    def find(self, ref: str, asker: Asker) -> R:
        """Return one by id, or the newest of that name: of those that the asker made, else of all visible ones.

        Raises:
            NotFound: there is none.
            UnreadableRow: its row cannot be read.
        """
        columns = self._table.c
        seen = self._select(asker.sees_only)
        named = seen.where(columns.name == ref).order_by(columns.id.desc())
        with self._database.reading() as connection:
            for way in (seen.where(columns.id == ref), named.where(columns.created_by == asker.name), named):
                found = self._read(connection, way.limit(1))
                if found:
                    return take(found[0], f"use {self._title} '{ref[:100]}'")
        raise self._missing(ref)

    def list(self, project: str, asker: Asker) -> tuple[R, ...]:
        """Return all of a project, the newest first. Rows that cannot be read are left out."""
        columns = self._table.c
        wanted = self._select(asker.sees_only).where(columns.project == project).order_by(columns.id.desc())
        with self._database.reading() as connection:
            return tuple(found for found in self._read(connection, wanted) if not isinstance(found, Unreadable))

    # ------------------------------------------------------------ for each kind

    def _read(self, connection: Connection, statement: Select[Any]) -> Sequence[R | Unreadable]:
        """Return the records of a query's rows."""
        raise NotImplementedError

    @contextmanager
    def _adding(self, project: str, new: NewContent, asker: Asker, now: float) -> Iterator[tuple[Transaction, str]]:
        """Lock the project, and check that the asker may add to it. Yields the transaction and a prefix of errors."""
        doing = f"make {self._title} '{new.name[:100]}'"
        check_title(doing, new.name)
        check_description(doing, new.description)
        with writing(self._database, now) as transaction:
            check_may_add(doing, lock_project(transaction, project, asker), asker)
            yield transaction, doing

    def _insert(
        self, transaction: Transaction, doing: str, row: dict[str, Any], project: str, asker: Asker, most: int | None
    ) -> str:
        """Insert a row, and return its id.

        Raises:
            Conflict: the project has one of this name, or the maximum number.
        """
        self._check_room(transaction, doing, project, most)
        transaction.lock_sequence()
        last: object = transaction.connection.execute(select(func.max(self._table.c.id))).scalar_one()
        made = make_id(self._prefix, transaction.now, self._random_bits, last)
        row = {**row, "id": made, "project": project, "created_by": asker.name, "version": 1}
        if not transaction.insert_new(self._table, row | {"created_at": transaction.now}):
            raise self._taken(doing)
        return made

    def _update(self, transaction: Transaction, old: R, values: dict[str, Any]) -> None:
        this = self._table.c.id == old.id
        transaction.connection.execute(update(self._table).where(this).values(**values, version=old.version + 1))

    def _remove(self, transaction: Transaction, old: R, asker: Asker) -> None:
        """Delete one; its jobs stay."""
        origin = jobs.c[self._kind]
        transaction.connection.execute(update(jobs).where(origin == old.id).values({origin: None}))
        transaction.connection.execute(delete(self._table).where(self._table.c.id == old.id))
        record_action(transaction, old.project, asker, f"{self._kind}.delete", old.id, {"name": old.name})

    def _report(
        self, transaction: Transaction, project: str, asker: Asker, verb: str, made: str, detail: dict[str, Any]
    ) -> R:
        """Write the audit entry and the event of an action, and return the changed record."""
        record_action(transaction, project, asker, f"{self._kind}.{verb}", made, detail)
        (found,) = self._read(transaction.connection, self._select().where(self._table.c.id == made))
        return take(found, f"use {self._title} '{made}'")

    def _select(self, sees_only: str | None = None) -> Select[Any]:
        """Return the query for those that a user may see. None: all."""
        joined = select(self._table).join(projects, projects.c.id == self._table.c.project)
        return joined.where(sees_project(sees_only))

    def _lock(self, transaction: Transaction, made: str, asker: Asker, verb: str, version: int | None) -> R:
        """Read one that the asker may change, and lock it and its project.

        Raises:
            NotFound: there is none of this id that the asker may see.
            Forbidden: it is neither the asker's nor in the asker's project, and the asker is no admin.
            StaleVersion: it has a newer version.
        """
        of = select(self._table.c.project).where(self._table.c.id == made)
        project = transaction.connection.execute(of).scalar_one_or_none()
        if project is None:
            raise self._missing(made)
        owner = lock_project(transaction, project, asker).owner
        # Read under the project's lock, which deletions and changes hold too.
        this = self._select().where(self._table.c.id == made).with_for_update(of=self._table)
        found = self._read(transaction.connection, this)
        if not found:
            raise self._missing(made)
        old = take(found[0], f"{verb} {self._title} '{made}'")
        doing = f"{verb} {self._title} '{old.name}'"
        check_may_act(doing, asker, (old.created_by, owner))
        check_version(doing, old.version, version)
        return old

    def _check_new_words(self, transaction: Transaction, doing: str, old: R, values: dict[str, Any]) -> None:
        """Check a new name and a new description, if given.

        Raises:
            BadField: the name or the description cannot be used.
            Conflict: the project has another one of this name.
        """
        check_description(doing, values.get("description", ""))
        if "name" in values:
            check_title(doing, values["name"])
            columns = self._table.c
            same = select(columns.id).where(columns.project == old.project, columns.name == values["name"])
            if transaction.connection.execute(same).first() is not None:
                raise self._taken(doing)

    def _check_room(self, transaction: Transaction, doing: str, project: str, most: int | None) -> None:
        """Raise Conflict if a project has the maximum number of this kind. None: no limit."""
        counting = select(func.count()).select_from(self._table).where(self._table.c.project == project)
        number: int = transaction.connection.execute(counting).scalar_one()
        if most is not None and number >= most:
            raise Conflict(
                f"Cannot {doing}: the project has {number}, and a project may have {most}. Delete some that "
                "you no longer need, use another project, or ask the operator to raise max_in_project."
            )

    def _taken(self, doing: str) -> Conflict:
        """Return the error for a name that is taken."""
        return Conflict(f"Cannot {doing}: the project already has one of this name. Choose another name.")

    def _missing(self, ref: str) -> NotFound:
        return NotFound(
            f"There is no {self._title} '{ref[:100]}' that you may see. 'legato {self._command}' lists those that you "
            "may."
        )
