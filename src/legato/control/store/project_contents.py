"""What training definitions and experiments have in common in the store: they lie in a project, under a name there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Connection, Select, Table, func, select

from legato.control.display_names import check_description, check_title
from legato.control.roles import Asker, check_may_act
from legato.control.store.projects import check_version, lock_project
from legato.control.store.rows import Unreadable, take
from legato.control.store.schema import projects
from legato.control.store.transactions import Transaction
from legato.control.store.visibility import sees_project
from legato.core.errors import Conflict, NotFound


class Thing(Protocol):
    """What is known of all of them."""

    @property
    def name(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def created_by(self) -> str: ...
    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Thing)


class Inside(Generic[R]):
    """One kind of thing in projects.

    Args:
        table: of these things.
        what: they are called.
        command: that lists them.
        read: makes records of the rows of a query.
    """

    def __init__(
        self, table: Table, what: str, command: str, read: Callable[[Connection, Select[Any]], Sequence[R | Unreadable]]
    ) -> None:
        self._table = table
        self._what = what
        self._command = command
        self._read = read

    def select(self, sees_only: str | None = None) -> Select[Any]:
        """Return a query for those that a user may see. None: all."""
        joined = select(self._table).join(projects, projects.c.id == self._table.c.project)
        return joined.where(sees_project(sees_only))

    def find(self, connection: Connection, ref: str, asker: Asker) -> R:
        """Return one by id, or the newest of that name: of those that the asker made, else of all seen.

        Raises:
            NotFound: there is none.
            UnreadableRow: its row cannot be read.
        """
        seen, columns = self.select(asker.sees_only), self._table.c
        named = seen.where(columns.name == ref).order_by(columns.id.desc())
        for way in (seen.where(columns.id == ref), named.where(columns.created_by == asker.name), named):
            found = self._read(connection, way.limit(1))
            if found:
                return take(found[0], f"use {self._what} '{ref[:100]}'")
        raise self._missing(ref)

    def list(self, connection: Connection, project: str, asker: Asker) -> tuple[R, ...]:
        """Return those of a project, the newest first, without those that cannot be read."""
        columns = self._table.c
        wanted = self.select(asker.sees_only).where(columns.project == project).order_by(columns.id.desc())
        return tuple(found for found in self._read(connection, wanted) if not isinstance(found, Unreadable))

    def read_again(self, transaction: Transaction, made: str) -> R:
        """Return one as it is in a transaction, by id."""
        (found,) = self._read(transaction.connection, self.select().where(self._table.c.id == made))
        return take(found, f"use {self._what} '{made}'")

    def last_id(self, transaction: Transaction) -> str | None:
        """Return the highest id in use."""
        found: str | None = transaction.connection.execute(select(func.max(self._table.c.id))).scalar_one()
        return found

    def lock(self, transaction: Transaction, made: str, asker: Asker, verb: str, version: int | None) -> R:
        """Read one that the asker may change, and keep others from changing it, or its project, meanwhile.

        Raises:
            NotFound: there is none of this id that the asker may see.
            Forbidden: it is neither the asker's nor in the asker's project, and the asker is no admin.
            StaleVersion: it has another version by now.
        """
        of = select(self._table.c.project).where(self._table.c.id == made)
        project = transaction.connection.execute(of).scalar_one_or_none()
        if project is None:
            raise self._missing(made)
        owner = lock_project(transaction, project, asker).owner
        # Under the lock, which a deletion or change of it holds.
        this = self.select().where(self._table.c.id == made).with_for_update(of=self._table)
        found = self._read(transaction.connection, this)
        if not found:
            raise self._missing(made)
        old = take(found[0], f"{verb} {self._what} '{made}'")
        doing = f"{verb} {self._what} '{old.name}'"
        check_may_act(doing, asker, (old.created_by, owner))
        check_version(doing, old.version, version)
        return old

    def check_new_words(self, transaction: Transaction, doing: str, old: R, values: dict[str, Any]) -> None:
        """Check a new name and a new description, as far as there are such.

        Raises:
            BadField: one cannot be used.
            Conflict: the project has another one of this name.
        """
        check_description(doing, values.get("description", ""))
        if "name" in values:
            check_title(doing, values["name"])
            columns = self._table.c
            same = select(columns.id).where(columns.project == old.project, columns.name == values["name"])
            if transaction.connection.execute(same).first() is not None:
                raise self.taken(doing)

    def check_room(self, transaction: Transaction, doing: str, project: str, most: int | None) -> None:
        """Raise Conflict if there are as many in a project as there may be. None: any number may."""
        counting = select(func.count()).select_from(self._table).where(self._table.c.project == project)
        number: int = transaction.connection.execute(counting).scalar_one()
        if most is not None and number >= most:
            raise Conflict(
                f"Cannot {doing}: the project has {number} already, and {most} may be in one. Delete some that "
                "you no longer need, use another project, or ask the operator to raise max_in_project."
            )

    def taken(self, doing: str) -> Conflict:
        """Return the error for a name that is taken."""
        return Conflict(f"Cannot {doing}: the project already has one of this name. Choose another name.")

    def _missing(self, ref: str) -> NotFound:
        return NotFound(
            f"There is no {self._what} '{ref[:100]}' that you may see. 'legato {self._command}' lists those that you "
            "may."
        )
